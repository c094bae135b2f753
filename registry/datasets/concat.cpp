// Data sets one after the other.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "registry/catalog.h"
#include "registry/datasets/data_details.h"

namespace trainrun {
namespace {

struct Concat {
  std::vector<Component<DatasetKind>> datasets;
  std::optional<std::vector<double>> weights;

  static void describe(Fields<Concat>& f) {
    f.required("datasets", &Concat::datasets)
        .not_empty("expected at least one data set")
        .doc("one after the other; their fields must be alike");
    f.optional("weights", &Concat::weights)
        .at_least(0)
        .doc("how often samples of each are drawn in training, relative to the others'; null: each sample once");
  }
  void check(Checker& checker) const {
    if (!weights) return;
    if (weights->size() != datasets.size()) {
      checker.fail("weights", "expected " + std::to_string(datasets.size()) + ", one for each data set, found " +
                                  std::to_string(weights->size()));
    }
    if (std::accumulate(weights->begin(), weights->end(), 0.0) == 0) checker.fail("weights", "are all 0");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs& inputs) const;
};

class ConcatDataset : public Dataset, public DetailedDataset {
 public:
  ConcatDataset(const Concat& options, const DatasetInputs& inputs) : weights_(options.weights) {
    for (const Component<DatasetKind>& dataset : options.datasets) parts_.push_back(dataset.build(inputs));
  }

  DatasetInfo info() const override {
    read_alike();
    DatasetInfo info = parts_[0]->info();
    for (size_t i = 1; i < parts_.size(); ++i) {
      const DatasetInfo other = parts_[i]->info();
      check_alike(info, other, i);
      const bool known = info.num_samples && other.num_samples;
      info.num_samples = known ? std::optional(*info.num_samples + *other.num_samples) : std::nullopt;
    }
    return info;
  }

  void open() override {
    read_alike();
    starts_ = {0};
    for (const auto& part : parts_) {
      part->open();
      starts_.push_back(starts_.back() + part->size());
    }
  }
  int64_t size() const override { return starts_.back(); }

  Batch get(const at::Tensor& indices) const override {
    return gather(indices,
                  [&](const Dataset& part, const at::Tensor& own, const at::Tensor&) { return part.get(own); });
  }
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override {
    return gather(indices, [&](const Dataset& part, const at::Tensor& own, const at::Tensor& places) {
      const SampleDraws own_draws =
          draws.of_rows({places.const_data_ptr<int64_t>(), places.const_data_ptr<int64_t>() + places.numel()});
      Batch batch = part.get_drawn(own, own_draws);
      draws.note(own_draws);
      return batch;
    });
  }

  /// `get(part, indices within it, their places among all)` gives the samples of one part.
  template <class Get>
  Batch gather(const at::Tensor& indices, const Get& get) const {
    Batch batch;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const at::Tensor places = places_in(indices, i);
      if (places.numel() == 0) continue;
      const Batch part = get(*parts_[i], indices.index_select(0, places) - starts_[i], places);
      for (const Batch::Field& field : part.fields()) put(batch, field, places, indices.numel());
    }
    return batch;
  }

  /// The first learns, the others read as it does: what it has not seen they may not have.
  void learn(const at::Tensor& indices) override {
    parts_[0]->learn(indices.index_select(0, places_in(indices, 0)));
    set_rest();
  }
  nlohmann::json learnt() const override { return parts_[0]->learnt(); }
  void set_learnt(const nlohmann::json& state) override {
    parts_[0]->set_learnt(state);
    set_rest();
  }

  std::vector<std::string> notes() const override {
    std::vector<std::string> all;
    for (const auto& part : parts_) {
      for (std::string& note : notes_of(*part)) all.push_back(std::move(note));
    }
    return all;
  }

  at::Tensor column(const std::string& field) const override {
    std::vector<at::Tensor> columns;
    for (const auto& part : parts_) columns.push_back(part->column(field));
    return at::cat(columns);
  }

  at::Tensor held(const std::string& field) const override {
    std::vector<at::Tensor> columns;
    for (const auto& part : parts_) {
      columns.push_back(held_field(*part, field));
      if (!columns.back().defined()) return {};
    }
    return at::cat(columns);
  }
  std::string place(int64_t index, const std::string& field) const override {
    const size_t part = part_of(index);
    return place_of_sample(*parts_[part], index - starts_[part], field);
  }
  std::string stored(int64_t index) const override {
    const size_t part = part_of(index);
    return stored_sample(*parts_[part], index - starts_[part]);
  }
  std::vector<std::string> names_within(const std::string& field) const override {
    return names_within_field(*parts_[0], field);
  }
  std::vector<std::string> texts(const std::string& column) const override {
    std::vector<std::string> all;
    for (const auto& part : parts_) {
      std::vector<std::string> own = texts_of(*part, column);
      if (own.empty() && part->size() > 0) return {};
      std::move(own.begin(), own.end(), std::back_inserter(all));
    }
    return all;
  }
  std::vector<std::string> class_names(const std::string& field) const override {
    return class_names_of(*parts_[0], field);
  }
  const ImageOptions* image_options() const override { return image_options_of(*parts_[0]); }
  nlohmann::json inferred() const override { return inferred_of(*parts_[0]); }
  void set_inferred(const nlohmann::json& inferred) override { read_as_inferred(*parts_[0], inferred); }

  /// weights[i] is the share of data set i, however many samples it has.
  at::Tensor sampling_weights() const override {
    if (!weights_) return {};
    std::vector<at::Tensor> weights;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int64_t size = parts_[i]->size();
      weights.push_back(
          at::full({size}, (*weights_)[i] / static_cast<double>(std::max<int64_t>(size, 1)), at::kDouble));
    }
    return at::cat(weights);
  }

 private:
  /// The others as the first one's file says, if it had to.
  void read_alike() const {
    if (parts_.size() < 2) return;
    const nlohmann::json inferred = inferred_of(*parts_[0]);
    for (size_t i = 1; i < parts_.size(); ++i) read_as_inferred(*parts_[i], inferred);
  }
  static void check_alike(const DatasetInfo& first, const DatasetInfo& other, size_t number) {
    bool alike = first.fields.size() == other.fields.size() && first.target == other.target;
    for (size_t i = 0; alike && i < first.fields.size(); ++i) {
      const FieldInfo& a = first.fields[i];
      const FieldInfo& b = other.fields[i];
      alike = a.name == b.name && a.shape == b.shape && a.dtype == b.dtype;
    }
    if (!alike) {
      throw DataError("the fields of data set " + std::to_string(number) +
                      " are not those of data set 0: " + fields_text(other) + "; expected " + fields_text(first));
    }
  }
  static std::string fields_text(const DatasetInfo& info) {
    std::vector<std::string> texts;
    for (const FieldInfo& field : info.fields) {
      std::vector<std::string> sizes;
      for (const int64_t size : field.shape) sizes.push_back(std::to_string(size));
      texts.push_back(field.name + " [" + join(sizes) + "] " + at::toString(field.dtype));
    }
    return join(texts);
  }

  void set_rest() {
    const nlohmann::json state = parts_[0]->learnt();
    if (state.is_null()) return;
    for (size_t i = 1; i < parts_.size(); ++i) parts_[i]->set_learnt(state);
  }
  size_t part_of(int64_t index) const {
    size_t part = 0;
    while (index >= starts_[part + 1]) ++part;
    return part;
  }
  at::Tensor places_in(const at::Tensor& indices, size_t part) const {
    return ((indices >= starts_[part]) & (indices < starts_[part + 1])).nonzero().flatten();
  }
  static void put(Batch& batch, const Batch::Field& field, const at::Tensor& places, int64_t size) {
    const bool is_new = std::none_of(batch.fields().begin(), batch.fields().end(),
                                     [&](const Batch::Field& other) { return other.name == field.name; });
    if (is_new) {
      std::vector<int64_t> sizes = field.tensor.sizes().vec();
      sizes[0] = size;
      batch.set(field.name, at::empty(sizes, field.tensor.options()));
    }
    batch.at(field.name).index_copy_(0, places, field.tensor);
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::optional<std::vector<double>> weights_;
  std::vector<int64_t> starts_ = {0};
};

std::unique_ptr<Dataset> Concat::build(const DatasetInputs& inputs) const {
  return std::make_unique<ConcatDataset>(*this, inputs);
}

}  // namespace

void add_concat(DatasetRegistry& datasets) { datasets.add<Concat>("Concat", "several data sets one after the other"); }

}  // namespace trainrun
