#include "registry/data/joined_datasets.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "registry/data/mixed_texts.h"
#include "registry/data/views.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

std::string joined_fields_text(const DatasetInfo& info) {
  std::vector<std::string> texts;
  for (const FieldInfo& field : info.fields) {
    std::vector<std::string> sizes;
    for (const int64_t size : field.shape) sizes.push_back(std::to_string(size));
    texts.push_back(field.name + " [" + join(sizes) + "] " + at::toString(field.dtype));
  }
  return join(texts);
}

void require_same_fields(const DatasetInfo& first, const DatasetInfo& other, size_t number) {
  bool alike = first.fields.size() == other.fields.size() && first.target == other.target;
  for (size_t i = 0; alike && i < first.fields.size(); ++i) {
    const FieldInfo& a = first.fields[i];
    const FieldInfo& b = other.fields[i];
    alike = a.name == b.name && a.shape == b.shape && a.dtype == b.dtype;
  }
  if (!alike) {
    throw DataError("the fields of data set " + std::to_string(number) + " are not those of data set 0: " +
                    joined_fields_text(other) + "; expected " + joined_fields_text(first));
  }
}

/// The samples of a batch that one part has.
struct Piece {
  Batch rows;
  at::Tensor places;  // of the rows in the batch
};

/// With what the field is filled up by the first of these data sets that does so.
std::optional<int64_t> padding_of(const std::vector<std::unique_ptr<Dataset>>& parts, const std::string& field) {
  for (const auto& part : parts) {
    if (const auto padding = part->facts().field(field).padding) return padding;
  }
  return std::nullopt;
}

/// One field of all pieces: [samples, …]. `padding`: with what those are filled up that are smaller.
at::Tensor joined_rows(const std::vector<Piece>& pieces, const std::string& field,
                       const std::function<std::optional<int64_t>()>& padding_of_field) {
  const at::Tensor& first = pieces[0].rows.at(field);
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[0] = 0;
  bool alike = true;
  at::ScalarType dtype = first.scalar_type();
  for (const Piece& piece : pieces) {
    const at::Tensor& rows = piece.rows.at(field);
    if (rows.scalar_type() == at::kDouble) dtype = at::kDouble;  // of one part alone, perhaps
    if (rows.dim() != first.dim()) throw DataError("field " + field + ": the data sets' samples are not alike");
    alike = alike && rows.sizes().slice(1) == first.sizes().slice(1);
    for (size_t d = 1; d < sizes.size(); ++d) sizes[d] = std::max(sizes[d], rows.size(static_cast<int64_t>(d)));
    sizes[0] += rows.size(0);
  }
  std::optional<int64_t> padding;
  if (!alike) padding = padding_of_field();
  if (!alike && !padding) throw DataError("field " + field + ": the data sets' samples are not of one size");
  at::Tensor all = alike ? at::empty(sizes, dtype) : at::full(sizes, *padding, dtype);
  for (const Piece& piece : pieces) {
    at::Tensor rows = piece.rows.at(field).to(dtype);
    if (!alike) {
      std::vector<int64_t> own = sizes;
      own[0] = rows.size(0);
      at::Tensor padded = at::full(own, *padding, rows.options());
      at::Tensor inner = padded;
      for (int64_t d = 1; d < rows.dim(); ++d) inner = inner.narrow(d, 0, rows.size(d));
      inner.copy_(rows);
      rows = padded;
    }
    all.index_copy_(0, piece.places, rows);
  }
  return all;
}

}  // namespace

DatasetInfo JoinedDatasets::info() const {
  for (const auto& part : parts_) require_all_drawn(*part, name_);
  read_alike();
  std::vector<DatasetInfo> infos;
  for (const auto& part : parts_) infos.push_back(part->info());
  complete_text_infos(infos);
  DatasetInfo info = infos[0];
  for (size_t i = 1; i < parts_.size(); ++i) {
    const DatasetInfo& other = infos[i];
    require_same_fields(info, other, i);
    const bool known = info.num_samples && other.num_samples;
    info.num_samples = known ? std::optional(*info.num_samples + *other.num_samples) : std::nullopt;
  }
  return info;
}

void JoinedDatasets::open() {
  joined_ = info();  // throws where fields differ
  starts_ = {0};
  for (const auto& part : parts_) {
    part->open();
    starts_.push_back(starts_.back() + part->size());
  }
  require_same_classes();
}

/// The parts' samples mean the same only where the numbers of their classes do.
void JoinedDatasets::require_same_classes() const {
  const DatasetInfo first = parts_[0]->info();
  for (size_t i = 1; i < parts_.size(); ++i) {
    const DatasetInfo info = parts_[i]->info();
    for (const FieldInfo& field : first.fields) {
      const std::vector<std::string> expected = parts_[0]->facts().field(field.name).class_names;
      const std::vector<std::string> found = parts_[i]->facts().field(field.name).class_names;
      const FieldInfo* own = info.find(field.name);
      std::optional<int64_t> number;  // what it lacks is made for it
      if (own) number = own->num_classes;
      const bool counts_agree = !field.num_classes || !number || *field.num_classes == *number;
      const bool names_agree = expected.empty() || found.empty() || expected == found;
      if (counts_agree && names_agree) continue;
      const std::string those_found = found.empty() ? std::to_string(number.value_or(0)) + " classes" : join(found);
      throw DataError("the classes of '" + field.name + "' in data set " + std::to_string(i) +
                      " are not those of data set 0: " + those_found + "; expected " +
                      (expected.empty() ? std::to_string(field.num_classes.value_or(0)) + " classes" : join(expected)));
    }
  }
}

Batch JoinedDatasets::get(const at::Tensor& indices) const {
  return gather(indices, [&](const Dataset& part, const at::Tensor& own, const at::Tensor&) { return part.get(own); });
}

Batch JoinedDatasets::get_drawn(const at::Tensor& indices, const SampleDraws& draws) const {
  return gather(indices, [&](const Dataset& part, const at::Tensor& own, const at::Tensor& places) {
    const SampleDraws own_draws =
        draws.of_rows({places.const_data_ptr<int64_t>(), places.const_data_ptr<int64_t>() + places.numel()});
    Batch batch = part.get_drawn(own, own_draws);
    draws.note(own_draws);
    return batch;
  });
}

/// `get(part, indices within it, their places among all)` gives the samples of one part. Where parts pad their samples
/// to the longest of a batch, all are padded to the longest of any part.
template <class Get>
Batch JoinedDatasets::gather(const at::Tensor& indices, const Get& get) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const at::Tensor places = places_in(indices, i);
    if (places.numel() == 0) continue;
    Batch rows = get(*parts_[i], indices.index_select(0, places) - starts_[i], places);
    pieces.push_back({completed_texts(std::move(rows), joined_), places});
  }
  if (pieces.size() == 1) return std::move(pieces[0].rows);  // all of them, in their order
  Batch batch;
  if (pieces.empty()) return batch;
  for (const Batch::Field& field : pieces[0].rows.fields()) {
    batch.set(field.name, joined_rows(pieces, field.name, [&] { return padding_of(parts_, field.name); }));
  }
  return batch;
}

void JoinedDatasets::learn(const at::Tensor& indices) {
  parts_[0]->learn(indices.index_select(0, places_in(indices, 0)));
  set_rest();
}

void JoinedDatasets::set_learnt(const nlohmann::json& state) {
  parts_[0]->set_learnt(state);
  set_rest();
}

/// What the first has not seen, the others may not have.
void JoinedDatasets::set_rest() {
  const nlohmann::json state = parts_[0]->learnt();
  if (!state.is_null()) {
    for (size_t i = 1; i < parts_.size(); ++i) parts_[i]->set_learnt(state);
  }
  require_same_classes();
}

/// Those of the first, but where samples are numbered, or all have a say.
DatasetFacts JoinedDatasets::facts() const {
  DatasetFacts facts = parts_[0]->facts();
  facts.field = [this, first = facts.field](const std::string& name) {
    FieldFacts of_field = first(name);
    if (!of_field.padding) of_field.padding = padding_of(parts_, name);
    of_field.renumbering = "";  // where the recipe would say it is within one of several
    return of_field;
  };
  facts.held = [this](const std::string& field) { return held(field); };
  facts.place = [this](int64_t index, const std::string& field) { return place(index, field); };
  facts.stored = [this](int64_t index) { return stored(index); };
  facts.texts = [this](const std::string& column) { return texts(column); };
  facts.lengths = [this] { return lengths(); };
  facts.own_order = {};
  facts.draws_itself = false;
  facts.num_drawn = DatasetFacts().num_drawn;
  facts.disorder = [this](const std::optional<std::string>& group) { return disorder(group); };
  facts.series_starts = [this] { return series_starts(); };
  facts.holes = [this](const std::string& column) { return holes(column); };
  facts.notes = [this] { return notes(); };
  return facts;
}

std::vector<std::string> JoinedDatasets::notes() const {
  std::vector<std::string> all;
  for (const auto& part : parts_) {
    for (std::string& note : part->facts().notes()) all.push_back(std::move(note));
  }
  return all;
}

std::string JoinedDatasets::disorder(const std::optional<std::string>& group) const {
  for (const auto& part : parts_) {
    if (std::string fault = part->facts().disorder(group); !fault.empty()) return fault;
  }
  return "";
}

/// Each part is another series, or has several.
std::vector<int64_t> JoinedDatasets::series_starts() const {
  std::vector<int64_t> starts;
  int64_t begin = 0;
  for (const auto& part : parts_) {
    if (begin > 0) starts.push_back(begin);
    for (const int64_t start : part->facts().series_starts()) starts.push_back(begin + start);
    begin += is_open() ? part->size() : part->info().num_samples.value_or(0);
  }
  return starts;
}

std::vector<DatasetFacts::Hole> JoinedDatasets::holes(const std::string& column) const {
  std::vector<DatasetFacts::Hole> all;
  int64_t begin = 0;
  for (const auto& part : parts_) {
    for (DatasetFacts::Hole& hole : part->facts().holes(column)) all.push_back({begin + hole.before, hole.text});
    begin += part->size();
  }
  return all;
}

at::Tensor JoinedDatasets::column(const std::string& field) const {
  std::vector<at::Tensor> columns;
  for (const auto& part : parts_) columns.push_back(part->column(field));
  return at::cat(columns);
}

at::Tensor JoinedDatasets::lengths() const {
  std::vector<at::Tensor> lengths;
  for (const auto& part : parts_) {
    lengths.push_back(part->facts().lengths());
    if (!lengths.back().defined()) return {};
  }
  return at::cat(lengths);
}

at::Tensor JoinedDatasets::held(const std::string& field) const {
  std::vector<at::Tensor> columns;
  for (const auto& part : parts_) {
    columns.push_back(part->facts().held(field));
    if (!columns.back().defined()) return {};
  }
  return at::cat(columns);
}

std::string JoinedDatasets::place(int64_t index, const std::string& field) const {
  const size_t part = part_of(index);
  return parts_[part]->facts().place(index - starts_[part], field);
}

std::string JoinedDatasets::stored(int64_t index) const {
  const size_t part = part_of(index);
  return parts_[part]->facts().stored(index - starts_[part]);
}

std::vector<std::string> JoinedDatasets::texts(const std::string& column) const {
  std::vector<std::string> all;
  for (const auto& part : parts_) {
    std::vector<std::string> own = part->facts().texts(column);
    if (own.empty() && part->size() > 0) return {};
    std::move(own.begin(), own.end(), std::back_inserter(all));
  }
  return all;
}

/// The others as the first one's file says, if it had to.
void JoinedDatasets::read_alike() const {
  if (parts_.size() < 2) return;
  const nlohmann::json inferred = parts_[0]->facts().inferred();
  for (size_t i = 1; i < parts_.size(); ++i) parts_[i]->set_inferred(inferred);
}

size_t JoinedDatasets::part_of(int64_t index) const {
  size_t part = 0;
  while (index >= starts_[part + 1]) ++part;
  return part;
}

at::Tensor JoinedDatasets::places_in(const at::Tensor& indices, size_t part) const {
  return ((indices >= starts_[part]) & (indices < starts_[part + 1])).nonzero().flatten();
}

namespace {

std::string tokenizer_within(const Value& written) {
  if (const Value* own = written.find("tokenizer"); own && own->is_scalar()) return own->text();
  for (const Value::Entry& entry : written.entries()) {
    if (std::string found = tokenizer_within(entry.value); !found.empty()) return found;
  }
  for (const Value& item : written.items()) {
    if (std::string found = tokenizer_within(item); !found.empty()) return found;
  }
  return "";
}

/// By which tokenizer a data set, or what is within it, reads its texts; "" where none does.
std::string tokenizer_of(const Component<DatasetKind>& data) {
  const auto own = data.attributes.find("tokenizer");
  return own != data.attributes.end() && own->is_string() ? own->get<std::string>() : tokenizer_within(data.written);
}

}  // namespace

std::string tokenizers_fault(const std::vector<const Component<DatasetKind>*>& data) {
  for (size_t i = 1; i < data.size(); ++i) {
    const std::string first = tokenizer_of(*data[0]);
    const std::string other = tokenizer_of(*data[i]);
    if (first == other) continue;
    return "data set " + std::to_string(i) + " reads its texts by the tokenizer '" + other + "' and data set 0 by '" +
           first + "', so that their tokens would not mean the same; give them one tokenizer";
  }
  return "";
}

}  // namespace trainrun
