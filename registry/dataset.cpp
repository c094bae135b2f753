#include "registry/dataset.h"

#include <ATen/ops/index_select.h>

namespace trainrun {

int64_t TensorDataset::size() const { return fields_.empty() ? 0 : fields_[0].tensor.size(0); }

Batch TensorDataset::get(const at::Tensor& indices) const {
  Batch batch;
  for (const Rows& rows : fields_) {
    at::Tensor tensor = at::index_select(rows.tensor, 0, indices);
    if (rows.divisor > 0) tensor = tensor.to(at::kFloat).div_(rows.divisor);
    batch.set(rows.name, std::move(tensor));
  }
  return batch;
}

void TensorDataset::set_field(const std::string& name, at::Tensor rows, double divisor) {
  if (!fields_.empty() && rows.size(0) != size()) {
    throw DataError("field " + name + " has " + std::to_string(rows.size(0)) + " samples, " + fields_[0].name +
                    " has " + std::to_string(size()));
  }
  fields_.push_back({name, std::move(rows), divisor});
}

}  // namespace trainrun
