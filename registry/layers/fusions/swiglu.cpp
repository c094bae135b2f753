#include "registry/graph/casting.h"
#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/silu_product.h"

// The gated feed-forward of Llama and its like: SiLU(gate(x)) * up(x). Source: Shazeer 2020, "GLU Variants Improve
// Transformer".

namespace trainrun {
namespace {

class SwiGlu : public Operation, public CastsInputs {
 public:
  explicit SwiGlu(const FusedLayers& layers)
      : gate_(layers["gate"].layer.operation), up_(layers["up"].layer.operation) {}
  Tensors run(const Tensors& inputs) const override {
    const at::Tensor gate = gate_->run(inputs)[0];
    return {kernels::silu_product(gate, up_->run(inputs)[0])};
  }

 private:
  std::shared_ptr<const Operation> gate_;
  std::shared_ptr<const Operation> up_;
};

}  // namespace

void add_swiglu(FusionRegistry& fusions) {
  fusions.add({"SwiGLU",
               "SiLU(gate(x)) * up(x) of two Linears, as one step: equal but for rounding",
               {.nodes = {{"gate", {"Linear"}, {"x"}},
                          {"activation", {"SiLU"}, {"gate"}},
                          {"up", {"Linear"}, {"x"}},
                          {"product", {"Mul"}, {"activation", "up"}, true}}},
               [](const FusedLayers& layers) { return std::make_shared<SwiGlu>(layers); }});
}

}  // namespace trainrun
