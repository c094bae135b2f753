#include "registry/components/optimizers/before_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

namespace trainrun {

void BeforeStep::keep(const Tensors& tensors) {
  if (!overflow_.defined()) return;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const at::Tensor own = tensor.detach();
    (own.device() == overflow_.device() ? tensors_ : numbers_).emplace_back(own, own.clone());
  }
}

void BeforeStep::restore() const {
  if (tensors_.empty()) return;
  const at::Tensor is_skipped = overflow_.gt(0);
  for (const auto& [tensor, before] : tensors_) {
    at::Tensor changed = tensor;
    at::where_out(changed, is_skipped, before, tensor);
  }
}

}  // namespace trainrun
