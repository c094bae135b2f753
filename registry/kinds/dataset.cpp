#include "registry/kinds/dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "registry/kinds/dataset_facts.h"

namespace trainrun {

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
    at::Tensor tensor = at::index_select(rows.tensor, 0, indices);
    if (rows.divisor > 0) tensor = tensor.to(at::kFloat).div_(rows.divisor);
    batch.set(rows.name, std::move(tensor));
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
