#include "registry/components/optimizers/norms.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

namespace trainrun {

at::Tensor norms_of(const Tensors& tensors) { return at::stack(at::_foreach_norm(tensors)).to(at::kDouble); }

at::Tensor numbers_beside(const at::Tensor& neighbour, const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).to(neighbour.device(), at::kDouble, /*non_blocking=*/true);
}

Tensors scaled(const Tensors& tensors, const at::Tensor& rates) {
  return at::_foreach_mul(tensors, rates.to(tensors[0].scalar_type()).unbind());
}

}  // namespace trainrun
