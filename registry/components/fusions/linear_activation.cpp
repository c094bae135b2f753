#include <ATen/ops/relu.h>

#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"

// A product of matrices and the activation of what it gives. ReLU, whose gradient follows from its output, overwrites
// the product, so that one tensor less is kept for the backward pass; not where the product is a view (of a sequence's
// rows as a matrix), since a change of a view costs the backward pass a copy.

namespace trainrun {
namespace {

class LinearActivation : public Operation {
 public:
  explicit LinearActivation(const FusedLayers& layers)
      : linear_(layers["linear"].layer.operation),
        activation_(layers["activation"].layer.operation),
        is_relu_(layers["activation"].type == "ReLU") {}
  Tensors run(const Tensors& inputs) const override {
    Tensors product = linear_->run(inputs);
    if (!is_relu_ || product[0].is_view()) return activation_->run(product);
    at::relu_(product[0]);
    return product;
  }

 private:
  std::shared_ptr<const Operation> linear_;
  std::shared_ptr<const Operation> activation_;
  bool is_relu_;
};

}  // namespace

void add_linear_activation(FusionRegistry& fusions) {
  fusions.add({"LinearActivation",
               "a Linear and the GELU or ReLU after it, as one step, bit for bit",
               {.nodes = {{"linear", {"Linear", "TransposedLinear"}}, {"activation", {"GELU", "ReLU"}, {"linear"}}}},
               [](const FusedLayers& layers) { return std::make_shared<LinearActivation>(layers); }});
}

}  // namespace trainrun
