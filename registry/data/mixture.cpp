// Data sets mixed by weight.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "registry/data/joined_datasets.h"
#include "registry/data/views.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/splitmix.h"

namespace trainrun {

enum class MixtureStop { kFirstExhausted, kAllExhausted };
template <>
struct Words<MixtureStop> {
  static constexpr std::array kWords = {"first_exhausted", "all_exhausted"};
};

namespace {

struct MixturePart {
  Component<DatasetKind> dataset;
  double weight = 1;

  static void describe(Fields<MixturePart>& f) {
    f.required("dataset", &MixturePart::dataset).doc("a data set; its fields and classes must be those of the others");
    f.optional("weight", &MixturePart::weight)
        .at_least(0)
        .doc("its share of the samples that are drawn, relative to the others' weights; with 0 none is drawn");
  }
};

struct Mixture {
  std::vector<MixturePart> of;
  MixtureStop stop = MixtureStop::kFirstExhausted;
  std::optional<int64_t> num_samples;

  static void describe(Fields<Mixture>& f) {
    f.required("of", &Mixture::of)
        .not_empty("expected at least one data set")
        .doc(
            "the data sets with their weights, as a list of {dataset: …, weight: …}; the classes, and whatever else "
            "must be learnt from the data, are learnt from the first, and the others are read accordingly");
    f.optional("stop", &Mixture::stop)
        .doc(
            "when an epoch ends: first_exhausted, before a sample of any data set would come twice; all_exhausted, "
            "once every sample of all has come, those of smaller shares several times");
    f.optional("num_samples", &Mixture::num_samples).at_least(1).doc("samples in an epoch, in place of `stop`");
    f.rule({.when = {the("num_samples").is_given()},
            .all = {the("stop").is("first_exhausted")},
            .at = "stop",
            .message = "says when an epoch ends, and so does num_samples; write one of them"});
  }
  void check(Checker& checker) const {
    std::vector<const Component<DatasetKind>*> all;
    double sum = 0;
    for (const MixturePart& part : of) {
      all.push_back(&part.dataset);
      sum += part.weight;
    }
    if (sum == 0) checker.fail("of", "all weights are 0");
    if (!std::isfinite(sum)) checker.fail("of", "the sum of the weights is not a finite number");
    if (const std::string fault = tokenizers_fault(all); !fault.empty()) checker.fail("of", fault);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs& inputs) const;
};

constexpr double kMostSamples = 0x1p53;  // beyond, a double does not count

/// How many samples of each data set an epoch draws.
class Quotas {
 public:
  Quotas(std::vector<double> weights, MixtureStop stop, std::optional<int64_t> num_samples)
      : shares_(std::move(weights)), stop_(stop), num_samples_(num_samples) {
    const double sum = std::accumulate(shares_.begin(), shares_.end(), 0.0);
    for (double& share : shares_) share /= sum;
  }

  /// `sizes`: of the data sets. Their sum is at most one sample for each data set off what the shares alone would be.
  std::vector<int64_t> of(const std::vector<int64_t>& sizes) const {
    const double total = num_samples_ ? static_cast<double>(*num_samples_) : total_of(sizes);
    if (total > kMostSamples) {
      throw DataError(
          "Mixture: an epoch would have more than 2^53 samples until all data sets are exhausted; write "
          "num_samples, or weights that differ less");
    }
    std::vector<int64_t> quotas = rounded(total);
    if (num_samples_) return quotas;
    for (size_t i = 0; i < quotas.size(); ++i) {
      if (shares_[i] == 0) continue;
      quotas[i] = stop_ == MixtureStop::kFirstExhausted ? std::min(quotas[i], sizes[i]) : std::max(quotas[i], sizes[i]);
    }
    return quotas;
  }
  bool is_drawn(size_t part) const { return shares_[part] > 0; }

 private:
  double total_of(const std::vector<int64_t>& sizes) const {
    const bool until_first = stop_ == MixtureStop::kFirstExhausted;
    std::optional<double> total;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (shares_[i] == 0) continue;
      const double own = static_cast<double>(sizes[i]) / shares_[i];
      total = !total ? own : until_first ? std::min(*total, own) : std::max(*total, own);
    }
    constexpr double kRounding = 1e-9;  // 3 / 0.3 shall be 10
    return until_first ? std::floor(*total + kRounding) : std::ceil(*total - kRounding);
  }

  /// By largest remainder: whole numbers whose sum is `total`.
  std::vector<int64_t> rounded(double total) const {
    std::vector<int64_t> quotas;
    std::vector<size_t> order;  // by what was cut off
    for (size_t i = 0; i < shares_.size(); ++i) {
      quotas.push_back(static_cast<int64_t>(std::floor(total * shares_[i])));
      if (shares_[i] > 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return total * shares_[a] - static_cast<double>(quotas[a]) > total * shares_[b] - static_cast<double>(quotas[b]);
    });
    int64_t rest = static_cast<int64_t>(total) - std::accumulate(quotas.begin(), quotas.end(), int64_t{0});
    for (size_t i = 0; rest > 0; ++i, --rest) ++quotas[order[i % order.size()]];
    return quotas;
  }

  std::vector<double> shares_;
  MixtureStop stop_;
  std::optional<int64_t> num_samples_;
};

at::Generator generator_of(uint64_t seed, size_t part, int64_t number, uint64_t use) {
  uint64_t key = splitmix64(seed);
  for (const uint64_t word : {static_cast<uint64_t>(part), static_cast<uint64_t>(number), use}) {
    key = splitmix64(key ^ word);
  }
  return at::make_generator<at::CPUGeneratorImpl>(key);
}

class MixtureDataset : public JoinedDatasets {
 public:
  MixtureDataset(std::vector<std::unique_ptr<Dataset>> parts, Quotas quotas)
      : JoinedDatasets("Mixture", std::move(parts)), quotas_(std::move(quotas)) {}

  void open() override {
    JoinedDatasets::open();
    for (size_t i = 0; i < parts().size(); ++i) {
      const std::string name = "data set " + std::to_string(i) + " of the Mixture ";
      if (parts()[i]->size() == 0 && quotas_.is_drawn(i)) throw DataError(name + "has no samples");
      if (parts()[i]->sampling_weights().defined()) {
        throw DataError(name + "has weights of its own; give its data sets and their weights to the Mixture");
      }
    }
    require_countable(*num_drawn());
  }

  DatasetFacts facts() const override {
    DatasetFacts facts = JoinedDatasets::facts();
    facts.draws_itself = true;
    facts.num_drawn = [this] { return num_drawn(); };
    facts.own_order = [this](uint64_t seed, int64_t epoch) { return order(seed, epoch); };
    return facts;
  }

 private:
  std::optional<int64_t> num_drawn() const {
    const auto sizes = sizes_of_parts();
    if (!sizes) return std::nullopt;
    const std::vector<int64_t> quotas = quotas_.of(*sizes);
    return std::accumulate(quotas.begin(), quotas.end(), int64_t{0});
  }
  /// Those known so far; where one is not known, nothing.
  std::optional<std::vector<int64_t>> sizes_of_parts() const {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < parts().size(); ++i) {
      const auto size = is_open() ? std::optional(parts()[i]->size()) : parts()[i]->info().num_samples;
      if (!size) return std::nullopt;
      sizes.push_back(*size);
    }
    return sizes;
  }

  /// Sample j of the n that an epoch draws of a data set lies at a random place of [j/n, (j+1)/n), so that every stretch
  /// of the epoch has of each data set its share, but for two samples at most. Everything follows from the seed and the
  /// epoch.
  at::Tensor order(uint64_t seed, int64_t epoch) const {
    const std::vector<int64_t> quotas = quotas_.of(*sizes_of_parts());
    std::vector<at::Tensor> samples;
    std::vector<at::Tensor> places;
    for (size_t i = 0; i < parts().size(); ++i) {
      if (quotas[i] == 0) continue;
      samples.push_back(samples_of_part(i, quotas[i], seed, epoch));
      at::Generator generator = generator_of(seed, i, epoch, kPlaces);
      places.push_back((at::arange(quotas[i], at::kDouble) + at::rand({quotas[i]}, generator, at::kDouble)) /
                       quotas[i]);
    }
    return at::cat(samples).index_select(0, at::cat(places).argsort(true, 0, false));
  }

  /// Where an epoch draws more samples than there are, it goes through all of them in rounds, each in a random order of
  /// its own. Where it draws fewer, epochs that follow each other share one order, as long as it has enough for a whole
  /// epoch. So no sample comes twice in an epoch before every one has come.
  at::Tensor samples_of_part(size_t part, int64_t count, uint64_t seed, int64_t epoch) const {
    const int64_t size = parts()[part]->size();
    const OwnOrder own = parts()[part]->facts().own_order;
    const int64_t epochs_of_order = std::max<int64_t>(size / count, 1);
    const int64_t rounds_of_epoch = (count + size - 1) / size;
    int64_t round = epoch / epochs_of_order * rounds_of_epoch;
    int64_t from = epoch % epochs_of_order * count;
    std::vector<at::Tensor> pieces;
    for (int64_t left = count; left > 0; ++round, from = 0) {
      const int64_t taken = std::min(left, size - from);
      at::Generator generator = generator_of(seed, part, round, kRounds);
      const at::Tensor all = own ? own(seed, round) : at::randperm(size, generator, at::kLong);
      pieces.push_back(all.narrow(0, from, taken));
      left -= taken;
    }
    return at::cat(pieces) + start_of(part);
  }

  static constexpr uint64_t kRounds = 0;
  static constexpr uint64_t kPlaces = 1;

  Quotas quotas_;
};

std::unique_ptr<Dataset> Mixture::build(const DatasetInputs& inputs) const {
  std::vector<std::unique_ptr<Dataset>> parts;
  std::vector<double> weights;
  for (const MixturePart& part : of) {
    parts.push_back(part.dataset.build(inputs));
    weights.push_back(part.weight);
  }
  return std::make_unique<MixtureDataset>(std::move(parts), Quotas(std::move(weights), stop, num_samples));
}

}  // namespace

void add_mixture(DatasetRegistry& datasets) {
  datasets.add<Mixture>("Mixture",
                        "several data sets, from which training draws samples by weight; an evaluation uses each "
                        "sample once, in Concat's order");
}

}  // namespace trainrun
