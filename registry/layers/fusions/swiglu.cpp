#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/silu_product.h"

// The middle of the gated feed-forward of Llama and its like, SiLU(gate) * up, whatever gives these two: Linears, or Linears
// with adapters. Source: Shazeer 2020, "GLU Variants Improve Transformer".

namespace trainrun {
namespace {

class SwiGlu : public Operation {
 public:
  Tensors run(const Tensors& inputs) const override { return {kernels::silu_product(inputs[0], inputs[1])}; }
};

}  // namespace

void add_swiglu(FusionRegistry& fusions) {
  fusions.add({"SwiGLU",
               "SiLU(gate) * up, as one step: equal but for rounding",
               {.nodes = {{"activation", {"SiLU"}, {"gate"}}, {"product", {"Mul"}, {"activation", "up"}, true}}},
               [](const FusedLayers&) { return std::make_shared<SwiGlu>(); }});
}

}  // namespace trainrun
