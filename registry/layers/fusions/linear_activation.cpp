#include "registry/graph/casting.h"
#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/linear.h"
#include "registry/layers/linears.h"

// A product of matrices and the activation of what it gives: one node of autograd, whose backward pass computes the
// activation's gradient and the bias's sum in one pass. A ReLU overwrites the product.

namespace trainrun {
namespace {

class LinearActivation : public Operation, public CastsInputs {
 public:
  LinearActivation(const Layer& linear, bool is_transposed, kernels::Activation activation)
      : linear_(linear), is_transposed_(is_transposed), activation_(activation) {}

  Tensors run(const Tensors& inputs) const override {
    const auto parameters = linear_.state->named_parameters(false);
    const at::Tensor* const bias = parameters.find("bias");
    return {kernels::activated_linear(
        inputs[0], {*parameters.find("weight"), bias ? *bias : at::Tensor(), is_transposed_, activation_})};
  }

 private:
  Layer linear_;
  bool is_transposed_;
  kernels::Activation activation_;
};

std::shared_ptr<const Operation> fuse_linear_activation(const FusedLayers& layers) {
  const GraphNode &linear = layers["linear"], &activation = layers["activation"];
  const bool is_transposed = linear.options<TransposedLinear>() != nullptr;
  if (!is_transposed && !linear.options<Linear>()) return nullptr;
  auto function = kernels::Activation::kRelu;
  if (activation.type == "GELU") {
    const bool by_tanh = activation.attributes.at("approximate") == "tanh";
    function = by_tanh ? kernels::Activation::kGeluTanh : kernels::Activation::kGelu;
  }
  return std::make_shared<LinearActivation>(linear.layer, is_transposed, function);
}

}  // namespace

void add_linear_activation(FusionRegistry& fusions) {
  fusions.add({"LinearActivation",
               "a Linear and the GELU or ReLU after it, as one step: equal but for rounding",
               {.nodes = {{"linear", {"Linear", "TransposedLinear"}}, {"activation", {"GELU", "ReLU"}, {"linear"}}}},
               fuse_linear_activation});
}

}  // namespace trainrun
