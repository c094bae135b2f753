#include "registry/components/transforms/scaling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

namespace trainrun {

namespace {

/// [K, 1, …]: beside `values`.
at::Tensor along(const Scaling& scaling, const std::vector<double>& numbers, const at::Tensor& values) {
  std::vector<int64_t> shape = {static_cast<int64_t>(numbers.size())};
  if (shape[0] > 1) shape.resize(1 + static_cast<size_t>(scaling.dims_behind), 1);
  return at::tensor(numbers, at::kDouble).view(shape).to(values.device());
}

}  // namespace

at::Tensor in_units(const Scaling& scaling, const at::Tensor& values) {
  return differences_in_units(scaling, values) + along(scaling, scaling.offset, values);
}

at::Tensor differences_in_units(const Scaling& scaling, const at::Tensor& values) {
  return values.to(at::kDouble) * along(scaling, scaling.scale, values);
}

}  // namespace trainrun
