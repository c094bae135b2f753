#include "registry/data/partition.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

#include "registry/kinds/dataset_facts.h"

namespace trainrun {
namespace {

using Numbers = std::vector<int64_t>;

int64_t sum_of(const Numbers& numbers) { return std::accumulate(numbers.begin(), numbers.end(), int64_t{0}); }

/// 0 … n - 1, in a random order where there is a seed.
Numbers drawn_order(int64_t n, std::optional<at::Generator>& generator) {
  Numbers order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  if (!generator) return order;
  const at::Tensor drawn = at::randperm(n, *generator, at::kLong);
  return {drawn.const_data_ptr<int64_t>(), drawn.const_data_ptr<int64_t>() + n};
}

std::optional<at::Generator> generator_of(std::optional<uint64_t> seed) {
  if (!seed) return std::nullopt;
  return at::make_generator<at::CPUGeneratorImpl>(*seed);
}

/// The samples of each number, from 0.
std::vector<Numbers> members_of(const Numbers& numbers) {
  std::vector<Numbers> members;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<size_t>(numbers[i]);
    if (number >= members.size()) members.resize(number + 1);
    members[number].push_back(static_cast<int64_t>(i));
  }
  return members;
}

/// How many samples of one class after another each part gets: its share, rounded down, or up where what it has got of
/// the classes so far lags behind most.
class Shares {
 public:
  explicit Shares(const Numbers& weights) : weights_(weights), total_(sum_of(weights)), lag_(weights.size()) {}

  Numbers of(int64_t count) {
    Numbers shares(weights_.size());
    std::vector<size_t> uneven;
    int64_t left = count;
    for (size_t part = 0; part < weights_.size(); ++part) {
      shares[part] = count * weights_[part] / total_;
      left -= shares[part];
      const int64_t rest = count * weights_[part] % total_;
      lag_[part] += rest;
      if (rest > 0) uneven.push_back(part);
    }
    std::stable_sort(uneven.begin(), uneven.end(), [this](size_t a, size_t b) { return lag_[a] > lag_[b]; });
    for (size_t i = 0; i < static_cast<size_t>(left); ++i) {
      ++shares[uneven[i]];
      lag_[uneven[i]] -= total_;
    }
    return shares;
  }

 private:
  const Numbers& weights_;
  int64_t total_;
  Numbers lag_;  // in parts of a sample of 1 / total_
};

/// How evenly classes are spread over parts while groups are added.
class Spread {
 public:
  using Counts = std::map<size_t, int64_t>;  // samples of each class

  Spread(const Numbers& weights, const Numbers& of_classes)
      : weights_(weights), of_classes_(of_classes), counts_(weights.size(), Numbers(of_classes.size())) {}

  /// By how much the deviation over the parts, summed over the classes, would change.
  double change(size_t part, const Counts& group) const {
    double change = 0;
    for (const auto& [label, count] : group) change += deviation(label, part, count) - deviation(label, part, 0);
    return change;
  }
  void add(size_t part, const Counts& group) {
    for (const auto& [label, count] : group) counts_[part][label] += count;
  }

 private:
  double deviation(size_t label, size_t part, int64_t more) const {
    double sum = 0;
    double squares = 0;
    double parts = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] == 0) continue;
      const auto count = static_cast<double>(counts_[i][label] + (i == part ? more : 0));
      const double share = count / (static_cast<double>(of_classes_[label]) * static_cast<double>(weights_[i]));
      sum += share;
      squares += share * share;
      ++parts;
    }
    return std::sqrt(std::max(0.0, squares / parts - sum / parts * (sum / parts)));
  }

  const Numbers& weights_;
  const Numbers& of_classes_;
  std::vector<Numbers> counts_;  // [part][class]
};

/// Numbers from 0 in the order in which values come first.
template <class T>
Numbers numbered(const std::vector<T>& values) {
  std::unordered_map<T, int64_t> numbers;
  Numbers of_each;
  of_each.reserve(values.size());
  for (const T& value : values) {
    of_each.push_back(numbers.emplace(value, static_cast<int64_t>(numbers.size())).first->second);
  }
  return of_each;
}

}  // namespace

Numbers keys_of(const Dataset& data, const std::string& column) {
  if (const std::vector<std::string> texts = data.facts().texts(column); !texts.empty()) return numbered(texts);
  const at::Tensor values = data.column(column).squeeze();
  if (values.dim() != 1 || values.numel() != data.size()) {
    throw DataError("field '" + column + "' does not hold one value for each sample, by which they could be divided");
  }
  const at::Tensor numbers = values.to(at::kDouble).contiguous();
  const double* first = numbers.const_data_ptr<double>();
  return numbered(std::vector<double>(first, first + numbers.numel()));
}

namespace {

Numbers classes_of_target(const Dataset& data) {
  const DatasetInfo info = data.info();
  const FieldInfo* target = info.find(info.target);
  if (!target || !target->shape.empty() || at::isFloatingType(target->dtype)) {
    throw DataError("stratify: the target '" + info.target + "' does not hold one class for each sample");
  }
  return keys_of(data, info.target);
}

}  // namespace

Numbers Partition::parts() const { return groups.empty() ? by_class() : by_group(); }

Numbers Partition::by_class() const {
  auto generator = generator_of(seed);
  Numbers part_of(classes.size());
  Shares shares(weights);
  for (const Numbers& samples : members_of(classes)) {
    const auto count = static_cast<int64_t>(samples.size());
    const Numbers order = drawn_order(count, generator);
    auto next = order.begin();
    const Numbers own = shares.of(count);
    for (size_t part = 0; part < own.size(); ++part) {
      for (int64_t i = 0; i < own[part]; ++i) {
        part_of[static_cast<size_t>(samples[static_cast<size_t>(*next++)])] = static_cast<int64_t>(part);
      }
    }
  }
  return part_of;
}

namespace {

/// A group, as parts are chosen for it.
struct Group {
  Numbers samples;
  Spread::Counts counts;  // of its classes
  double unevenness = 0;  // of these: their standard deviation over all classes
};

std::vector<Group> groups_of(const Partition& partition, const Numbers& of_classes) {
  std::vector<Group> groups;
  for (Numbers& samples : members_of(partition.groups)) groups.push_back({std::move(samples), {}, 0});
  if (of_classes.empty()) return groups;
  const auto num_classes = static_cast<double>(of_classes.size());
  for (Group& group : groups) {
    for (const int64_t i : group.samples) {
      ++group.counts[static_cast<size_t>(partition.classes[static_cast<size_t>(i)])];
    }
    double squares = 0;
    for (const auto& [label, count] : group.counts) squares += static_cast<double>(count) * static_cast<double>(count);
    const double mean = static_cast<double>(group.samples.size()) / num_classes;
    group.unevenness = std::sqrt(std::max(0.0, squares / num_classes - mean * mean));
  }
  return groups;
}

/// Those of which groups are to be taken first come first.
void sort_groups(std::vector<Group>& groups, bool by_classes, std::optional<uint64_t> seed) {
  auto generator = generator_of(seed);
  std::vector<Group> drawn;
  for (const int64_t i : drawn_order(static_cast<int64_t>(groups.size()), generator)) {
    drawn.push_back(std::move(groups[static_cast<size_t>(i)]));
  }
  std::stable_sort(drawn.begin(), drawn.end(), [&](const Group& a, const Group& b) {
    return by_classes ? a.unevenness > b.unevenness : a.samples.size() > b.samples.size();
  });
  groups = std::move(drawn);
}

/// Chooses the part of one group after another.
class GroupParts {
 public:
  GroupParts(const Numbers& weights, const Numbers& of_classes)
      : weights_(weights), spread_(weights, of_classes), filled_(weights.size()) {}

  size_t choose(const Group& group, size_t groups_left) {
    const size_t empty = count_empty();
    std::optional<size_t> best;
    for (size_t part = 0; part < weights_.size(); ++part) {
      const bool may = weights_[part] > 0 && (empty < groups_left || filled_[part] == 0);
      if (may && (!best || is_better(part, *best, group))) best = part;
    }
    filled_[*best] += static_cast<int64_t>(group.samples.size());
    spread_.add(*best, group.counts);
    return *best;
  }

 private:
  size_t count_empty() const {
    size_t empty = 0;
    for (size_t part = 0; part < weights_.size(); ++part) empty += weights_[part] > 0 && filled_[part] == 0 ? 1 : 0;
    return empty;
  }
  /// How full the part would be.
  double fill(size_t part, const Group& group) const {
    const auto size = static_cast<double>(group.samples.size());
    return (static_cast<double>(filled_[part]) + size) / static_cast<double>(weights_[part]);
  }
  bool is_better(size_t part, size_t other, const Group& group) const {
    constexpr double kRounding = 1e-12;
    const double difference = spread_.change(part, group.counts) - spread_.change(other, group.counts);
    if (std::abs(difference) > kRounding) return difference < 0;
    return fill(part, group) < fill(other, group);
  }

  const Numbers& weights_;
  Spread spread_;
  Numbers filled_;  // samples of each part
};

}  // namespace

Numbers Partition::by_group() const {
  Numbers of_classes;  // samples of each class
  for (const Numbers& samples : members_of(classes)) of_classes.push_back(static_cast<int64_t>(samples.size()));
  std::vector<Group> all = groups_of(*this, of_classes);
  const auto wanted = weights.size() - static_cast<size_t>(std::count(weights.begin(), weights.end(), 0));
  if (all.size() < wanted) {
    throw DataError(std::to_string(all.size()) + " groups cannot make " + std::to_string(wanted) + " parts");
  }
  sort_groups(all, !classes.empty(), seed);
  GroupParts chosen(weights, of_classes);
  Numbers part_of(groups.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t part = chosen.choose(all[i], all.size() - i);
    for (const int64_t sample : all[i].samples) part_of[static_cast<size_t>(sample)] = static_cast<int64_t>(part);
  }
  return part_of;
}

at::Tensor PartitionBy::choose(const Dataset& data, const Numbers& weights, std::optional<uint64_t> seed,
                               const std::vector<bool>& is_chosen) const {
  Partition partition{weights, {}, {}, seed};
  if (stratify) partition.classes = classes_of_target(data);
  if (group) partition.groups = keys_of(data, *group);
  const Numbers part_of = partition.parts();
  Numbers chosen;
  for (size_t i = 0; i < part_of.size(); ++i) {
    if (is_chosen[static_cast<size_t>(part_of[i])]) chosen.push_back(static_cast<int64_t>(i));
  }
  return at::tensor(chosen, at::kLong);
}

}  // namespace trainrun
