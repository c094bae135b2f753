#include "registry/kinds/dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <array>
#include <vector>

#include "registry/kinds/dataset_facts.h"

namespace trainrun {
namespace {

/// Fetches memory that will soon be read: rows lie anywhere in what may be gigabytes.
void fetch(const uint8_t* begin, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t next = 0; next < bytes; next += kLine) __builtin_prefetch(begin + next);
}

/// Rows of bytes, divided by `divisor` in float32. What a byte becomes is computed once for each of the 256.
at::Tensor divided_rows(const at::Tensor& bytes, const at::Tensor& given, double divisor) {
  const at::Tensor indices = given.to(at::kLong).contiguous();  // as index_select takes them: of any step, int32 too
  const int64_t* const wanted = indices.const_data_ptr<int64_t>();
  const int64_t count = indices.numel(), size = bytes.size(0), of_row = size > 0 ? bytes.numel() / size : 0;
  const bool are_rows = std::all_of(wanted, wanted + count, [&](int64_t i) { return i >= 0 && i < size; });
  const bool is_plain = bytes.is_contiguous() && bytes.scalar_type() == at::kByte;
  if (!are_rows || !is_plain) return at::index_select(bytes, 0, indices).to(at::kFloat).div_(divisor);
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / static_cast<float>(divisor);
  std::vector<int64_t> sizes = bytes.sizes().vec();
  sizes[0] = count;
  at::Tensor result = at::empty(sizes, at::kFloat);
  auto* to = result.mutable_data_ptr<float>();
  const auto* const all = bytes.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    const auto* const from = all + wanted[i] * of_row;
    if (i + 1 < count) fetch(all + wanted[i + 1] * of_row, of_row);
    to = std::transform(from, from + of_row, to, [&](uint8_t byte) { return values[byte]; });
  }
  return result;
}

}  // namespace

Batch Dataset::get_drawn(const at::Tensor& indices, const SampleDraws&) const { return get(indices); }

void Dataset::learn(const at::Tensor&) {}
nlohmann::json Dataset::learnt() const { return nullptr; }
void Dataset::set_learnt(const nlohmann::json&) {}
at::Tensor Dataset::sampling_weights() const { return {}; }
DatasetFacts Dataset::facts() const { return {}; }
void Dataset::set_inferred(const nlohmann::json&) {}

at::Tensor Dataset::column(const std::string& field) const {
  constexpr int64_t kPiece = 256;  // samples at a time: all their other fields are made, too
  std::vector<at::Tensor> pieces;
  for (int64_t begin = 0; begin < size(); begin += kPiece) {
    pieces.push_back(get(at::arange(begin, std::min(begin + kPiece, size()), at::kLong)).at(field));
  }
  return pieces.empty() ? at::Tensor() : at::cat(pieces);
}

int64_t TensorDataset::size() const { return fields_.empty() ? 0 : fields_[0].tensor.size(0); }

Batch TensorDataset::get(const at::Tensor& indices) const {
  Batch batch;
  for (const Rows& rows : fields_) {
    batch.set(rows.name, rows.divisor > 0 ? divided_rows(rows.tensor, indices, rows.divisor)
                                          : at::index_select(rows.tensor, 0, indices));
  }
  return batch;
}

at::Tensor TensorDataset::column(const std::string& field) const {
  for (const Rows& rows : fields_) {
    if (rows.name == field && rows.divisor == 0) return rows.tensor;
  }
  return Dataset::column(field);
}

DatasetFacts TensorDataset::facts() const {
  DatasetFacts facts;
  facts.held = [this](const std::string& name) {
    const DatasetInfo fields = info();
    const FieldInfo* field = fields.find(name);
    // What is not kept as it is given, images as bytes, is given as numbers.
    return field && !at::isFloatingType(field->dtype) ? column(name) : at::Tensor();
  };
  return facts;
}

void TensorDataset::set_field(const std::string& name, at::Tensor rows, double divisor) {
  if (!fields_.empty() && rows.size(0) != size()) {
    throw DataError("field " + name + " has " + std::to_string(rows.size(0)) + " samples, " + fields_[0].name +
                    " has " + std::to_string(size()));
  }
  fields_.push_back({name, std::move(rows), divisor});
}

}  // namespace trainrun
