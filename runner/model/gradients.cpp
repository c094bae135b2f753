#include "runner/model/gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace trainrun {

void reset_gradients(const Tensors& parameters) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

at::Tensor gradient_norm(const Tensors& parameters, Communicator* shards) {
  const at::NoGradGuard no_gradients;
  const Tensors gradients = gradients_of(parameters);
  at::Tensor norm;
  if (gradients.empty()) {  // on the device where the other ranks have theirs
    norm = at::zeros({}, at::TensorOptions(parameters.empty() ? at::Device(at::kCPU) : parameters[0].device()));
  } else {
    norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  }
  if (shards) {
    const at::Tensor square = norm.square();
    shards->sum(square);
    norm = square.sqrt();
  }
  return norm;
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  constexpr double kEpsilon = 1e-6;  // as clip_grad_norm_
  return (max_norm / (norm + kEpsilon)).clamp_max(1.0);
}

void multiply_gradients(const Tensors& parameters, const at::Tensor& factor) {
  const at::NoGradGuard no_gradients;
  const Tensors gradients = gradients_of(parameters);
  if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
}

void clip_gradient_values(const Tensors& parameters, double max_value) {
  const at::NoGradGuard no_gradients;
  const Tensors gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  at::_foreach_clamp_min_(gradients, -max_value);
  at::_foreach_clamp_max_(gradients, max_value);
}

}  // namespace trainrun
