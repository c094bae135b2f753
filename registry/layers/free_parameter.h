#pragma once

#include <torch/nn/module.h>

#include <utility>

namespace trainrun {

/// What the layer Parameter keeps: one tensor, which the graph registers under the layer's own name ("cls_token", not
/// "cls_token.weight"). To initializers it is the layer's weight.
struct FreeParameter : torch::nn::Module {
  explicit FreeParameter(at::Tensor initial) : value(register_parameter("weight", std::move(initial))) {}
  at::Tensor value;
};

}  // namespace trainrun
