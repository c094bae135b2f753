#include "registry/data/views.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"

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

at::Tensor DatasetView::sampling_weights() const {
  const at::Tensor weights = base_->sampling_weights();
  return weights.defined() ? weights.index_select(0, indices_) : weights;
}

namespace {

class ChosenSamples : public DatasetView {
 public:
  ChosenSamples(std::unique_ptr<Dataset> base, Selection choose, Disorder disorder)
      : DatasetView(std::move(base), {}), choose_(std::move(choose)), disorder_(std::move(disorder)) {}
  ChosenSamples(std::unique_ptr<Dataset> base, SelectionByValue choose, Disorder disorder)
      : DatasetView(std::move(base), {}), choose_by_value_(std::move(choose)), disorder_(std::move(disorder)) {}

  DatasetInfo info() const override {
    require_all_drawn(*base_, "a subset");
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
    require_all_drawn(*base_, "a subset");
    base_->open();
    require_countable(base_->size());
    indices_ = choose_by_value_ ? choose_by_value_(*base_) : choose_(base_->size());
  }
  DatasetFacts facts() const override {
    DatasetFacts facts = DatasetView::facts();
    if (!disorder_.fault.empty()) {
      facts.disorder = [base = facts.disorder, own = disorder_](const std::optional<std::string>& group) {
        const bool does_nothing = own.group && own.group == group;
        return does_nothing ? base(group) : own.fault;
      };
    }
    return facts;
  }

 private:
  Selection choose_;
  SelectionByValue choose_by_value_;  // in its place
  Disorder disorder_;
};

}  // namespace

std::unique_ptr<Dataset> choose_samples(std::unique_ptr<Dataset> base, Selection choose, Disorder disorder) {
  return std::make_unique<ChosenSamples>(std::move(base), std::move(choose), std::move(disorder));
}

std::unique_ptr<Dataset> choose_by_value(std::unique_ptr<Dataset> base, SelectionByValue choose, Disorder disorder) {
  return std::make_unique<ChosenSamples>(std::move(base), std::move(choose), std::move(disorder));
}

namespace {

bool is_empty(const std::variant<int64_t, std::vector<int64_t>>& subset) {
  const auto* count = std::get_if<int64_t>(&subset);
  return count ? *count == 0 : std::get<std::vector<int64_t>>(subset).empty();
}

/// Every row, or every third, is a series in time, too.
Disorder disorder_of_subset(const std::variant<int64_t, std::vector<int64_t>>& subset) {
  const auto* numbers = std::get_if<std::vector<int64_t>>(&subset);
  for (size_t i = 1; numbers && i < numbers->size(); ++i) {
    const int64_t step = (*numbers)[i] - (*numbers)[i - 1];
    if (step > 0 && step == (*numbers)[1] - (*numbers)[0]) continue;
    return {
        "its subset lists rows at uneven distances; write numbers that each lie as far behind the one before, or how "
        "many of the first rows to take",
        {}};
  }
  return {};
}

}  // namespace

void require_all_drawn(const Dataset& data, const std::string& outer) {
  if (!data.facts().draws_itself) return;
  throw DataError(outer + " cannot take its samples from a Mixture, which draws its own in each epoch; put " + outer +
                  " around the data sets within the Mixture");
}

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
  component.build = [build = component.build, choose, disorder = disorder_of_subset(*component.common.subset)](
                        const DatasetInputs& inputs) { return choose_samples(build(inputs), choose, disorder); };
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
    return choose_samples(
        std::move(data), [options = *this](int64_t size) { return options.choose(size); }, disorder());
  }
  const auto choose = [options = *this](const Dataset& base) {
    std::vector<bool> is_own(options.fractions.size());
    is_own[options.number()] = true;
    const auto drawn = options.shuffle ? std::optional(static_cast<uint64_t>(options.seed)) : std::nullopt;
    return options.PartitionBy::choose(base, options.lengths(base.size()), drawn, is_own);
  };
  return choose_by_value(std::move(data), choose, disorder());
}

Disorder SplitOptions::disorder() const {
  if (stratify) return {"stratify takes the rows of a part from all over the data; leave it out", {}};
  if (group) {
    return {
        "its parts are made of whole groups, which are series of their own; write group: " + *group + " beside length",
        group};
  }
  if (!shuffle) return {};
  return {
      "split draws the rows of a part at random; write shuffle: false in it, so that one part is the past and the "
      "other the future",
      {}};
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

at::Tensor fold_samples_of(const Dataset& data, const Fold& fold, uint64_t seed, bool training) {
  if (!fold.by.is_needed()) return fold_samples(data.size(), fold.number, fold.count, seed, training);
  const auto count = static_cast<size_t>(fold.count);
  std::vector<bool> is_chosen(count, training);
  is_chosen[static_cast<size_t>(fold.number)] = !training;
  return fold.by.choose(data, std::vector<int64_t>(count, 1), seed, is_chosen);
}

std::unique_ptr<Dataset> fold_of(std::unique_ptr<Dataset> data, const Fold& fold, uint64_t seed, bool training) {
  if (!fold.by.is_needed()) {
    return choose_samples(std::move(data),
                          [=](int64_t size) { return fold_samples(size, fold.number, fold.count, seed, training); });
  }
  return choose_by_value(std::move(data),
                         [=](const Dataset& base) { return fold_samples_of(base, fold, seed, training); });
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

}  // namespace

void add_views(DatasetRegistry& datasets) {
  datasets.add<SplitPart>("Split", "a part of another data set, drawn by a seed");
}

}  // namespace trainrun
