#include "registry/transforms/scaling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

namespace trainrun {

at::Tensor in_units(const Scaling& scaling, const at::Tensor& values) {
  return differences_in_units(scaling, values) + at::tensor(scaling.offset, at::kDouble).to(values.device());
}

at::Tensor differences_in_units(const Scaling& scaling, const at::Tensor& values) {
  return values.to(at::kDouble) * at::tensor(scaling.scale, at::kDouble).to(values.device());
}

}  // namespace trainrun
