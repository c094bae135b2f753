#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <array>

#include "registry/graph/casting.h"
#include "registry/graph/fusion.h"
#include "registry/graph/graph.h"
#include "registry/kernels/linear.h"
#include "registry/layers/linears.h"

// Queries, keys and values of an attention: three Linears of the same input, computed as one product with their weights
// one below the other, forward and backward. Where nothing is trained, each is computed by itself: putting the weights
// together would cost more than a product with a few tokens.

namespace trainrun {
namespace {

/// Which of the three products a gradient has come to.
struct Reached : torch::CustomClassHolder {
  std::array<bool, 3> by_gradient{};
};

/// Three tensors one below the other. One whose product no loss reads gets no gradient, as without the fusion: for a
/// gradient of zeros an optimizer would decay the weight.
struct Joined : torch::autograd::Function<Joined> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& first,
                            const at::Tensor& second, const at::Tensor& third,
                            const c10::intrusive_ptr<Reached>& reached) {
    context->saved_data["sizes"] = std::vector<int64_t>{first.size(0), second.size(0), third.size(0)};
    context->saved_data["reached"] = c10::IValue::make_capsule(reached);
    return at::cat({first, second, third});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto& data = context->saved_data;
    const auto reached = c10::static_intrusive_pointer_cast<Reached>(data["reached"].toCapsule());
    Tensors parts = gradients[0].split_with_sizes(data["sizes"].toIntVector());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!reached->by_gradient.at(i)) parts[i] = at::Tensor();
    }
    parts.emplace_back();
    return parts;
  }
};

class QueryKeyValue : public Operation, public CastsInputs {
 public:
  explicit QueryKeyValue(const FusedLayers& layers)
      : layers_{layers["query"].layer, layers["key"].layer, layers["value"].layer} {}

  Tensors run(const Tensors& inputs) const override {
    Tensors weights;
    Tensors biases;
    for (const Layer& layer : layers_) {
      const auto parameters = layer.state->named_parameters(false);
      weights.push_back(*parameters.find("weight"));
      if (const at::Tensor* bias = parameters.find("bias")) biases.push_back(*bias);
    }
    const auto is_trained = [](const at::Tensor& weight) { return weight.requires_grad(); };
    if (!c10::GradMode::is_enabled() || !std::all_of(weights.begin(), weights.end(), is_trained)) {
      return {layers_[0].forward(inputs)[0], layers_[1].forward(inputs)[0], layers_[2].forward(inputs)[0]};
    }
    const auto reached = c10::make_intrusive<Reached>();
    const auto joined = [&](const Tensors& three) { return Joined::apply(three[0], three[1], three[2], reached); };
    const at::Tensor bias = biases.empty() ? at::Tensor() : joined(biases);
    const at::Tensor product = kernels::linear(inputs[0], joined(weights), bias);
    std::vector<int64_t> sizes;
    for (const at::Tensor& weight : weights) sizes.push_back(weight.size(0));
    Tensors parts = product.split_with_sizes(sizes, -1);
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].register_hook([reached, i](const at::Tensor& gradient) {
        if (gradient.defined()) reached->by_gradient.at(i) = true;
      });
    }
    return parts;
  }
  Traits traits() const override { return {.view = true}; }

 private:
  std::array<Layer, 3> layers_;
};

std::shared_ptr<const Operation> fuse_query_key_value(const FusedLayers& layers) {
  int64_t biases = 0;
  for (const char* name : {"query", "key", "value"}) {
    const auto* linear = layers[name].options<Linear>();
    if (!linear) return nullptr;
    biases += linear->bias ? 1 : 0;
  }
  if (biases % 3 != 0) return nullptr;
  return std::make_shared<QueryKeyValue>(layers);
}

}  // namespace

void add_query_key_value(FusionRegistry& fusions) {
  fusions.add({"QueryKeyValue",
               "three Linears of the same input, as one product; equal but for the order of sums",
               {.nodes = {{"query", {"Linear"}, {"x"}}, {"key", {"Linear"}, {"x"}}, {"value", {"Linear"}, {"x"}}},
                .gives = {"query", "key", "value"}},
               fuse_query_key_value});
}

}  // namespace trainrun
