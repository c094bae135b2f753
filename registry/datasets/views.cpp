#include "registry/datasets/views.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "registry/catalog.h"

namespace trainrun {

// --- some samples of a data set

DatasetView::DatasetView(std::shared_ptr<Dataset> base, at::Tensor indices)
    : base_(std::move(base)), indices_(std::move(indices)) {}

DatasetInfo DatasetView::info() const {
  DatasetInfo info = base_->info();
  info.num_samples = size();
  return info;
}

Batch DatasetView::get(const at::Tensor& indices) const { return base_->get(indices_.index_select(0, indices)); }

Batch DatasetView::get_drawn(const at::Tensor& indices, const SampleDraws& draws) const {
  return base_->get_drawn(indices_.index_select(0, indices), draws);
}

void DatasetView::learn(const at::Tensor& indices) { base_->learn(indices_.index_select(0, indices)); }

at::Tensor DatasetView::column(const std::string& field) const {
  return base_->column(field).index_select(0, indices_);
}

at::Tensor DatasetView::held(const std::string& field) const {
  const at::Tensor rows = held_field(*base_, field);
  return rows.defined() ? rows.index_select(0, indices_) : rows;
}

std::string DatasetView::place(int64_t index, const std::string& field) const {
  return place_of_sample(*base_, indices_[index].item<int64_t>(), field);
}

std::vector<std::string> DatasetView::texts(const std::string& column) const {
  const std::vector<std::string> all = texts_of(*base_, column);
  std::vector<std::string> own;
  if (all.empty()) return own;
  const int64_t* numbers = indices_.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < size(); ++i) own.push_back(all[static_cast<size_t>(numbers[i])]);
  return own;
}

std::string DatasetView::stored(int64_t index) const { return stored_sample(*base_, indices_[index].item<int64_t>()); }

/// Those of the whole that are among these samples, as they follow each other there.
OwnOrder DatasetView::own_order() const {
  OwnOrder whole = own_order_of(*base_);
  if (!whole) return whole;
  return [whole = std::move(whole), indices = indices_](uint64_t seed, int64_t epoch) {
    const at::Tensor order = whole(seed, epoch);
    at::Tensor places = at::empty_like(order);
    places.index_copy_(0, order, at::arange(order.numel(), at::kLong));
    return places.index_select(0, indices).argsort(true, 0, false);
  };
}

at::Tensor DatasetView::sampling_weights() const {
  const at::Tensor weights = base_->sampling_weights();
  return weights.defined() ? weights.index_select(0, indices_) : weights;
}

namespace {

class ChosenSamples : public DatasetView {
 public:
  ChosenSamples(std::unique_ptr<Dataset> base, Selection choose)
      : DatasetView(std::move(base), {}), choose_(std::move(choose)) {}
  ChosenSamples(std::unique_ptr<Dataset> base, SelectionByValue choose)
      : DatasetView(std::move(base), {}), choose_by_value_(std::move(choose)) {}

  DatasetInfo info() const override {
    DatasetInfo info = base_->info();
    if (choose_by_value_) {
      info.num_samples = indices_.defined() ? std::optional(indices_.numel()) : std::nullopt;
    } else if (info.num_samples) {
      require_countable(*info.num_samples);
      info.num_samples = choose_(*info.num_samples).numel();
    }
    return info;
  }
  void open() override {
    base_->open();
    require_countable(base_->size());
    indices_ = choose_by_value_ ? choose_by_value_(*base_) : choose_(base_->size());
  }

 private:
  Selection choose_;
  SelectionByValue choose_by_value_;  // in its place
};

}  // namespace

std::unique_ptr<Dataset> choose_samples(std::unique_ptr<Dataset> base, Selection choose) {
  return std::make_unique<ChosenSamples>(std::move(base), std::move(choose));
}

std::unique_ptr<Dataset> choose_by_value(std::unique_ptr<Dataset> base, SelectionByValue choose) {
  return std::make_unique<ChosenSamples>(std::move(base), std::move(choose));
}

namespace {

bool is_empty(const std::variant<int64_t, std::vector<int64_t>>& subset) {
  const auto* count = std::get_if<int64_t>(&subset);
  return count ? *count == 0 : std::get<std::vector<int64_t>>(subset).empty();
}

}  // namespace

void require_countable(int64_t num_samples) {
  const double needed = static_cast<double>(num_samples) * sizeof(int64_t);
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= memory) return;
  throw DataError(std::to_string(num_samples) + " samples: their numbers alone, in the order of an epoch, would take " +
                  std::to_string(std::llround(needed / 1e9)) + " GB of memory, but this machine has " +
                  std::to_string(std::llround(memory / 1e9)));
}

void DatasetKind::finish(Component<DatasetKind>& component, const Value& map, Reader& reader) {
  if (!component.common.subset) return;
  if (is_empty(*component.common.subset)) {
    const Value* subset = map.find("subset");
    const auto scope = reader.enter("subset");
    reader.error(subset ? subset->place() : map.place(),
                 "leaves no sample; write how many to take, or leave it out for all");
    return;
  }
  const Selection choose = [subset = *component.common.subset](int64_t size) {
    const auto* count = std::get_if<int64_t>(&subset);
    const at::Tensor chosen =
        count ? at::arange(*count, at::kLong) : at::tensor(std::get<std::vector<int64_t>>(subset), at::kLong);
    const int64_t needed = chosen.numel() == 0 ? 0 : chosen.max().item<int64_t>() + 1;
    if (needed > size) {
      throw DataError("the subset goes to sample " + std::to_string(needed - 1) + ", but there are only " +
                      std::to_string(size) + ", from 0");
    }
    return chosen;
  };
  component.build = [build = component.build, choose](const DatasetInputs& inputs) {
    return choose_samples(build(inputs), choose);
  };
}

// --- a part of a data set

size_t SplitOptions::number() const {
  if (const auto* index = std::get_if<int64_t>(&part)) return static_cast<size_t>(*index);
  const auto& name = std::get<std::string>(part);
  return name == "train" ? 0 : name == "validation" ? 1 : fractions.size() - 1;
}

void SplitOptions::check(Checker& checker) const {
  constexpr double kRounding = 1e-9;
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (std::abs(sum - 1) > kRounding)
    checker.fail("fractions", "their sum must be 1, but is " + detail::number_text(sum));
  if (number() >= fractions.size()) {
    checker.fail("part", "there are only " + std::to_string(fractions.size()) + " parts, numbered from 0");
  }
}

std::vector<int64_t> SplitOptions::lengths(int64_t size) const {
  std::vector<int64_t> lengths;
  for (const double fraction : fractions) {
    lengths.push_back(static_cast<int64_t>(std::floor(static_cast<double>(size) * fraction)));
  }
  const int64_t rest = size - std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (int64_t i = 0; i < rest; ++i) ++lengths[static_cast<size_t>(i) % lengths.size()];
  return lengths;
}

at::Tensor SplitOptions::choose(int64_t size) const {
  const std::vector<int64_t> all = lengths(size);
  const auto own = all.begin() + static_cast<std::ptrdiff_t>(number());
  const int64_t begin = std::accumulate(all.begin(), own, int64_t{0});
  if (!shuffle) return at::arange(begin, begin + *own, at::kLong);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randperm(size, generator, at::kLong).narrow(0, begin, *own);
}

std::unique_ptr<Dataset> SplitOptions::part_of(std::unique_ptr<Dataset> data) const {
  if (!is_needed()) {
    return choose_samples(std::move(data), [options = *this](int64_t size) { return options.choose(size); });
  }
  return choose_by_value(std::move(data), [options = *this](const Dataset& base) {
    std::vector<bool> is_own(options.fractions.size());
    is_own[options.number()] = true;
    const auto drawn = options.shuffle ? std::optional(static_cast<uint64_t>(options.seed)) : std::nullopt;
    return options.PartitionBy::choose(base, options.lengths(base.size()), drawn, is_own);
  });
}

at::Tensor fold_samples(int64_t size, int64_t fold, int64_t num_folds, uint64_t seed, bool training) {
  if (num_folds > size) {
    throw DataError(std::to_string(size) + " samples cannot make " + std::to_string(num_folds) + " folds");
  }
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor order = at::randperm(size, generator, at::kLong);
  const int64_t larger = size % num_folds;  // the first so many folds have one sample more
  const int64_t begin = fold * (size / num_folds) + std::min(fold, larger);
  const int64_t length = size / num_folds + (fold < larger ? 1 : 0);
  const at::Tensor rest = at::cat({order.narrow(0, 0, begin), order.narrow(0, begin + length, size - begin - length)});
  return std::get<0>((training ? rest : order.narrow(0, begin, length)).sort());
}

std::unique_ptr<Dataset> fold_of(std::unique_ptr<Dataset> data, const Fold& fold, uint64_t seed, bool training) {
  if (!fold.by.is_needed()) {
    return choose_samples(std::move(data),
                          [=](int64_t size) { return fold_samples(size, fold.number, fold.count, seed, training); });
  }
  return choose_by_value(std::move(data), [=](const Dataset& base) {
    const auto count = static_cast<size_t>(fold.count);
    std::vector<bool> is_chosen(count, training);
    is_chosen[static_cast<size_t>(fold.number)] = !training;
    return fold.by.choose(base, std::vector<int64_t>(count, 1), seed, is_chosen);
  });
}

namespace {

struct SplitPart : SplitOptions {
  Component<DatasetKind> dataset;

  static void describe(Fields<SplitPart>& f) {
    f.required("dataset", &SplitPart::dataset).doc("the data set to take a part of");
    SplitOptions::describe_into(f);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs& inputs) const { return part_of(dataset.build(inputs)); }
};

// --- data sets one after the other

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

void add_views(DatasetRegistry& datasets) {
  datasets.add<SplitPart>("Split", "a part of another data set, drawn by a seed");
  datasets.add<Concat>("Concat", "several data sets one after the other");
}

}  // namespace trainrun
