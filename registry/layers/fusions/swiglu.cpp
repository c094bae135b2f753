#include <ATen/ops/silu.h>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/silu_product.h"

// The middle of the gated feed-forward of Llama and its like, SiLU(gate) * up, whatever gives these two: Linears, or Linears
// with adapters. Source: Shazeer 2020, "GLU Variants Improve Transformer".

namespace trainrun {
namespace {

class SwiGlu : public Operation {
 public:
  explicit SwiGlu(const FusedLayers& layers) {
    if (layers.is_turned("product")) turned_product_ = layers["product"].layer.operation;
  }

  Tensors run(const Tensors& inputs) const override {
    const at::Tensor &gate = inputs[0], &up = inputs[1];
    if (!turned_product_ || kernels::supports_silu_product(gate, up)) return {kernels::silu_product(gate, up)};
    return turned_product_->run({up, at::silu(gate)});
  }

 private:
  std::shared_ptr<const Operation> turned_product_;  // of up and SiLU(gate), where the recipe has them in this order
};

}  // namespace

void add_swiglu(FusionRegistry& fusions) {
  fusions.add({"SwiGLU",
               "SiLU(gate) * up, as one step: equal but for rounding",
               {.nodes = {{"activation", {"SiLU"}, {"gate"}}, {"product", {"Mul"}, {"activation", "up"}, true}}},
               [](const FusedLayers& layers) { return std::make_shared<SwiGlu>(layers); }});
}

}  // namespace trainrun
