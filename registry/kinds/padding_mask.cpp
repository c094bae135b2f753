#include "registry/kinds/padding_mask.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <vector>

namespace trainrun {

std::string mask_name(const std::string& field) { return field + "_mask"; }

at::Tensor items_of(const Batch& batch, const std::string& field) {
  const std::string name = mask_name(field);
  const auto found = std::ranges::find(batch.fields(), name, &Batch::Field::name);
  if (found == batch.fields().end()) return {};
  const at::Tensor& mask = found->tensor;
  const at::Tensor& values = batch.at(field);
  const bool fits =
      mask.dim() == 2 && !mask.is_floating_point() && values.dim() >= 2 && mask.sizes() == values.sizes().slice(0, 2);
  return fits ? mask.ne(0) : at::Tensor();
}

at::Tensor beside(const at::Tensor& items, const at::Tensor& values) {
  std::vector<int64_t> shape(static_cast<size_t>(values.dim()), 1);
  shape[0] = items.size(0);
  shape[1] = items.size(1);
  return items.view(shape);
}

}  // namespace trainrun
