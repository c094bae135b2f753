#include "runner/report/data_measure.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "registry/formats/files/digest.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/padding_mask.h"

namespace trainrun {
namespace {

constexpr int64_t kMostColumns = 64;

bool is_picture(const FieldInfo& field) { return field.shape.size() == 3; }

/// [N, …] as [columns, values].
at::Tensor by_column(const at::Tensor& batch) {
  const int64_t dims = batch.dim();
  if (dims < 2) return batch.reshape({1, -1});
  // Channels of pictures come first, columns of rows and of series last.
  const at::Tensor turned = batch.movedim(dims == 4 ? 1 : dims - 1, 0).flatten(1);
  return turned.size(0) > kMostColumns ? batch.reshape({1, -1}) : turned;
}

}  // namespace

void FieldMeasure::add(const Batch& batch) {
  at::Tensor values = batch.at(field_.name);
  if (const at::Tensor items = items_of(batch, field_.name); items.defined()) {
    values = values.flatten(0, 1).index_select(0, items.flatten().nonzero().flatten());
  }
  if (values.numel() == 0) return;
  if (is_picture(field_)) {
    const at::Tensor rows = values.flatten(1);
    blank_ += std::get<0>(rows.max(1)).eq(std::get<0>(rows.min(1))).sum().item<int64_t>();
  }
  const at::Tensor columns = by_column(values).to(at::kDouble);
  sums_.resize(static_cast<size_t>(columns.size(0)));
  for (size_t i = 0; i < sums_.size(); ++i) {
    const at::Tensor all = columns[static_cast<int64_t>(i)];
    const at::Tensor finite = all.masked_select(all.isfinite());
    Sums& sums = sums_[i];
    sums.not_finite += all.numel() - finite.numel();
    if (finite.numel() == 0) continue;
    sums.count += static_cast<double>(finite.numel());
    sums.sum += finite.sum().item<double>();
    sums.squares += finite.square().sum().item<double>();
    sums.least = std::min(sums.least, finite.min().item<double>());
    sums.most = std::max(sums.most, finite.max().item<double>());
  }
}

std::string FieldMeasure::name_of(size_t column) const {
  if (sums_.size() == names_.size()) return names_[column];
  if (sums_.size() == 1) return field_.name;
  if (is_picture(field_) && sums_.size() == 3) {
    constexpr std::array kColours = {"red", "green", "blue"};
    return field_.name + ": " + kColours[column];
  }
  return field_.name + "[" + std::to_string(column) + "]";
}

std::vector<SurveyedSet::Column> FieldMeasure::columns() const {
  std::vector<SurveyedSet::Column> columns;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const Sums& sums = sums_[i];
    SurveyedSet::Column& column = columns.emplace_back();
    column.name = name_of(i);
    column.not_finite = sums.not_finite;
    if (sums.count == 0) continue;
    column.mean = sums.sum / sums.count;
    column.deviation = std::sqrt(std::max(0.0, sums.squares / sums.count - column.mean * column.mean));
    column.least = sums.least;
    column.most = sums.most;
  }
  return columns;
}

namespace {

/// Bytes of a row of int64 numbers up to the last that is not `padding`: how far a row is filled up depends on the batch.
size_t bytes_before_padding(const char* row, size_t bytes, int64_t padding) {
  const auto* numbers = reinterpret_cast<const int64_t*>(row);  // of a tensor, aligned
  size_t count = bytes / sizeof(int64_t);
  while (count > 0 && numbers[count - 1] == padding) --count;
  return count * sizeof(int64_t);
}

/// Of the samples, a piece at a time, each row of all fields but the target.
void add_rows(const Dataset& data, const std::vector<int64_t>& indices, size_t begin, size_t end,
              std::vector<std::string>& digests) {
  const std::string target = data.info().target;
  const std::vector<int64_t> piece(indices.begin() + static_cast<std::ptrdiff_t>(begin),
                                   indices.begin() + static_cast<std::ptrdiff_t>(end));
  const Batch batch = data.get(at::tensor(piece, at::kLong));
  std::vector<at::Tensor> fields;
  std::vector<std::optional<int64_t>> paddings;
  const DatasetFacts facts = data.facts();
  for (const Batch::Field& field : batch.fields()) {
    if (field.name == target) continue;
    fields.push_back(field.tensor.contiguous());
    const bool is_padded = field.tensor.dim() == 2 && field.tensor.scalar_type() == at::kLong;
    paddings.push_back(is_padded ? facts.field(field.name).padding : std::nullopt);
  }
  for (size_t row = 0; row < piece.size(); ++row) {
    Sha256 hash;
    for (size_t i = 0; i < fields.size(); ++i) {
      const size_t bytes = fields[i].nbytes() / piece.size();
      const auto* content = static_cast<const char*>(fields[i].const_data_ptr()) + row * bytes;
      const uint64_t size = paddings[i] ? bytes_before_padding(content, bytes, *paddings[i]) : bytes;
      hash.update(&size, sizeof(size));
      hash.update(content, size);
    }
    digests[begin + row] = hash.finish();
  }
}

}  // namespace

std::vector<std::string> contents_of(const Dataset& data, const std::vector<int64_t>& indices) {
  std::vector<std::string> digests(indices.size());
  if (indices.empty()) return digests;
  const DatasetFacts facts = data.facts();
  const bool has_files = facts.image_options != nullptr;
  constexpr int64_t kPiece = 64;
  const auto count = static_cast<int64_t>(indices.size());
  at::parallel_for(0, (count + kPiece - 1) / kPiece, 1, [&](int64_t first, int64_t last) {
    const auto begin = static_cast<size_t>(first * kPiece);
    const auto end = static_cast<size_t>(std::min(last * kPiece, count));
    for (size_t i = begin; has_files && i < end; ++i) digests[i] = sha256(facts.stored(indices[i]));
    for (size_t i = begin; !has_files && i < end; i += kPiece) {
      add_rows(data, indices, i, std::min(i + kPiece, end), digests);
    }
  });
  return digests;
}

}  // namespace trainrun
