#include "registry/data/data_details.h"

#include <ATen/ops/allclose.h>

#include <algorithm>

namespace trainrun {
namespace {

std::string numbered_place(int64_t index, const std::string& field) {
  return "sample " + std::to_string(index) + ":" + field;
}

}  // namespace

at::Tensor DetailedDataset::held(const std::string&) const { return {}; }
std::string DetailedDataset::place(int64_t index, const std::string& field) const {
  return numbered_place(index, field);
}
std::vector<std::string> DetailedDataset::names_within(const std::string&) const { return {}; }
nlohmann::json DetailedDataset::inferred() const { return nullptr; }
void DetailedDataset::set_inferred(const nlohmann::json&) {}
std::vector<std::string> DetailedDataset::notes() const { return {}; }
std::vector<std::string> DetailedDataset::texts(const std::string&) const { return {}; }
std::vector<std::string> DetailedDataset::class_names(const std::string&) const { return {}; }
OwnOrder DetailedDataset::own_order() const { return {}; }
bool DetailedDataset::draws_itself() const { return false; }
std::optional<int64_t> DetailedDataset::num_drawn() const { return std::nullopt; }
std::optional<int64_t> DetailedDataset::padding(const std::string&) const { return std::nullopt; }
const ImageOptions* DetailedDataset::image_options() const { return nullptr; }
std::string DetailedDataset::stored(int64_t) const { return ""; }
std::string DetailedDataset::disorder(const std::optional<std::string>&) const { return ""; }
std::vector<int64_t> DetailedDataset::series_starts() const { return {}; }

bool fits_float32(const at::Tensor& numbers) {
  constexpr int64_t kPiece = int64_t{1} << 20;  // at a time: files may be large
  const at::Tensor all = numbers.contiguous().flatten();
  for (int64_t begin = 0; begin < all.numel(); begin += kPiece) {
    const at::Tensor piece = all.narrow(0, begin, std::min(kPiece, all.numel() - begin));
    if (!at::allclose(piece.to(at::kFloat).to(at::kDouble), piece, 0, 0, /*equal_nan=*/true)) return false;
  }
  return true;
}
std::string DetailedDataset::renumbering(const std::string&) const { return ""; }

at::Tensor held_field(const Dataset& data, const std::string& field) {
  if (dynamic_cast<const TensorDataset*>(&data)) {
    const FieldInfo* info = nullptr;
    const DatasetInfo fields = data.info();
    info = fields.find(field);
    // What is not kept as it is given, images as bytes, is given as numbers.
    return info && !at::isFloatingType(info->dtype) ? data.column(field) : at::Tensor();
  }
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->held(field) : at::Tensor();
}

std::string place_of_sample(const Dataset& data, int64_t index, const std::string& field) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->place(index, field) : numbered_place(index, field);
}

std::vector<std::string> names_within_field(const Dataset& data, const std::string& field) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->names_within(field) : std::vector<std::string>();
}

std::vector<std::string> notes_of(const Dataset& data) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->notes() : std::vector<std::string>();
}

std::string disorder_of(const Dataset& data, const std::optional<std::string>& group) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->disorder(group) : "";
}

std::vector<int64_t> series_starts_of(const Dataset& data) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->series_starts() : std::vector<int64_t>();
}

std::vector<std::string> texts_of(const Dataset& data, const std::string& column) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->texts(column) : std::vector<std::string>();
}

std::vector<std::string> class_names_of(const Dataset& data, const std::string& field) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->class_names(field) : std::vector<std::string>();
}

std::string renumbering_of(const Dataset& data, const std::string& field) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->renumbering(field) : "";
}

OwnOrder own_order_of(const Dataset& data) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->own_order() : OwnOrder();
}

bool draws_itself(const Dataset& data) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed && detailed->draws_itself();
}

void require_all_drawn(const Dataset& data, const std::string& outer) {
  if (!draws_itself(data)) return;
  throw DataError(outer + " cannot take its samples from a Mixture, which draws its own in each epoch; put " + outer +
                  " around the data sets within the Mixture");
}

std::optional<int64_t> num_drawn_of(const Dataset& data) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->num_drawn() : std::nullopt;
}

std::optional<int64_t> padding_of(const Dataset& data, const std::string& field) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->padding(field) : std::nullopt;
}

const ImageOptions* image_options_of(const Dataset& data) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->image_options() : nullptr;
}

std::string stored_sample(const Dataset& data, int64_t index) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->stored(index) : "";
}

nlohmann::json inferred_of(const Dataset& data) {
  const auto* detailed = dynamic_cast<const DetailedDataset*>(&data);
  return detailed ? detailed->inferred() : nlohmann::json();
}

void read_as_inferred(Dataset& data, const nlohmann::json& inferred) {
  if (auto* detailed = dynamic_cast<DetailedDataset*>(&data); detailed && !inferred.is_null()) {
    detailed->set_inferred(inferred);
  }
}

}  // namespace trainrun
