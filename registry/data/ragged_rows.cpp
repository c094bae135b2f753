#include "registry/data/ragged_rows.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "registry/kinds/batch.h"

namespace trainrun {

int64_t RaggedRows::longest() const {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < begins.size(); ++i) longest = std::max(longest, begins[i + 1] - begins[i]);
  return longest;
}

int64_t RaggedRows::longest_of(const at::Tensor& indices) const {
  int64_t longest = 1;  // layers cannot take a sequence without any step
  const int64_t* rows = indices.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    longest = std::max(longest, begins[row + 1] - begins[row]);
  }
  return longest;
}

at::Tensor RaggedRows::padded(const at::Tensor& indices) const {
  std::vector<int64_t> sizes = items.sizes().vec();
  sizes[0] = longest_of(indices);
  sizes.insert(sizes.begin(), indices.numel());
  at::Tensor padded = at::full(sizes, padding, items.options());
  const int64_t* rows = indices.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    const int64_t length = begins[row + 1] - begins[row];
    padded[i].narrow(0, 0, length).copy_(items.narrow(0, begins[row], length));
  }
  return padded;
}

at::Tensor RaggedRows::mask(const at::Tensor& indices) const {
  const int64_t width = longest_of(indices);
  at::Tensor mask = at::zeros({indices.numel(), width}, at::kLong);
  const int64_t* rows = indices.const_data_ptr<int64_t>();
  int64_t* values = mask.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    std::fill_n(values + i * width, begins[row + 1] - begins[row], 1);
  }
  return mask;
}

void set_sequences(Batch& batch, const std::vector<std::pair<std::string, RaggedRows>>& sequences,
                   const at::Tensor& indices) {
  for (const auto& [name, rows] : sequences) {
    batch.set(name, rows.padded(indices));
    batch.set(mask_name(name), rows.mask(indices));
  }
}

}  // namespace trainrun
