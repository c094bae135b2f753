#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>

#include "runner/sweep/sampler.h"

namespace trainrun {
namespace {

constexpr int64_t kStartupTrials = 10;
constexpr int kCandidates = 24;
constexpr int64_t kGoodShare = 10;  // one trial in so many is a good one
constexpr int64_t kMostGood = 25;
constexpr double kPriorWeight = 1;
constexpr size_t kEquallyRecent = 25;  // so many of the newest trials weigh 1; those before them less and less

/// The probability of a standard normal number between `a` and `b`, precise in both tails.
double normal_mass(double a, double b) {
  const auto above = [](double x) { return 0.5 * std::erfc(x / std::numbers::sqrt2); };
  return a > 0 ? above(a) - above(b) : above(-b) - above(-a);
}

/// A dimension as the estimator sees it: numbers on a line, which is logarithmic where the dimension is, or categories.
class Axis {
 public:
  explicit Axis(const Dimension& dimension) : dimension_(dimension) {
    const double margin = dimension.is_integer() ? 0.5 : 0;
    low_ = on_line(dimension.low - margin);
    high_ = on_line(dimension.high + margin);
  }

  bool is_category() const { return dimension_.kind == Dimension::Kind::kChoices; }
  bool is_integer() const { return dimension_.is_integer(); }
  size_t num_categories() const { return dimension_.choices.size(); }
  double low() const { return low_; }
  double high() const { return high_; }
  double on_line(double value) const { return dimension_.is_logarithmic() ? std::log(value) : value; }
  double settled(double on_line) const {
    return dimension_.settled(dimension_.is_logarithmic() ? std::exp(on_line) : on_line);
  }

 private:
  const Dimension& dimension_;
  double low_ = 0, high_ = 0;
};

/// Of the density of one dimension: a kernel for each observation, and last the prior.
class Kernels {
 public:
  /// `values`: of the observations, as trials have them.
  Kernels(const Axis& axis, const std::vector<double>& values) : axis_(axis), values_(values) {
    if (axis.is_category()) return;
    for (const double value : values) means_.push_back(axis.on_line(value));
    find_widths();
    means_.push_back(0.5 * (axis.low() + axis.high()));
    widths_.push_back(axis.high() - axis.low());
  }

  double draw(size_t kernel, TrialRandom& random) const {
    if (axis_.is_category()) return draw_category(kernel, random);
    for (;;) {  // the mean lies within the bounds and the width is at most theirs: a third of the draws are good
      const double drawn = means_[kernel] + widths_[kernel] * random.normal();
      if (drawn >= axis_.low() && drawn <= axis_.high()) return axis_.settled(drawn);
    }
  }

  double log_density(size_t kernel, double value) const {
    if (axis_.is_category()) return std::log(category_weight(kernel, static_cast<size_t>(value)));
    const double mean = means_[kernel], width = widths_[kernel];
    const auto mass = [&](double from, double to) { return normal_mass((from - mean) / width, (to - mean) / width); };
    const double all = mass(axis_.low(), axis_.high());
    if (axis_.is_integer()) return std::log(mass(axis_.on_line(value - 0.5), axis_.on_line(value + 0.5)) / all);
    const double z = (axis_.on_line(value) - mean) / width;
    return -0.5 * z * z - std::log(width * std::sqrt(2 * std::numbers::pi) * all);
  }

 private:
  /// Each as wide as the distance to the farther neighbour, within limits that become narrower with more kernels.
  void find_widths() {
    const size_t count = means_.size();
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return means_[i]; });
    std::vector<double> points = {axis_.low()};
    for (const size_t i : order) points.push_back(means_[i]);
    points.push_back(axis_.high());
    const double range = axis_.high() - axis_.low();
    const double narrowest = range / std::min(100.0, 2.0 + static_cast<double>(count));
    widths_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      double before = points[i + 1] - points[i], after = points[i + 2] - points[i + 1];
      if (count >= 2 && i == 0) before = 0;  // the ends are not neighbours
      if (count >= 2 && i == count - 1) after = 0;
      widths_[order[i]] = std::clamp(std::max(before, after), narrowest, range);
    }
  }

  double category_weight(size_t kernel, size_t category) const {
    const auto categories = static_cast<double>(axis_.num_categories());
    if (kernel == values_.size()) return 1 / categories;
    const double prior = kPriorWeight / static_cast<double>(values_.size() + 1);
    const bool is_own = static_cast<size_t>(values_[kernel]) == category;
    return (prior + (is_own ? 1 : 0)) / (1 + prior * categories);
  }

  double draw_category(size_t kernel, TrialRandom& random) const {
    double left = random.uniform();
    size_t category = 0;
    for (; category + 1 < axis_.num_categories(); ++category) {
      left -= category_weight(kernel, category);
      if (left < 0) break;
    }
    return static_cast<double>(category);
  }

  const Axis& axis_;
  std::vector<double> values_;
  std::vector<double> means_, widths_;
};

/// Products of kernels, one for each observation, weighted by how new it is, and one for the prior.
class Density {
 public:
  Density(const std::vector<Axis>& axes, const std::vector<const Observation*>& observations) {
    for (size_t i = 0; i < axes.size(); ++i) {
      std::vector<double> values;
      for (const Observation* observation : observations) values.push_back(observation->point[i]);
      kernels_.emplace_back(axes[i], values);
    }
    const size_t count = observations.size();
    for (size_t i = 0; i < count; ++i) {
      const size_t ramp = count < kEquallyRecent ? 0 : count - kEquallyRecent;
      const double first = 1.0 / static_cast<double>(count);
      const double along = ramp > 1 ? static_cast<double>(i) / static_cast<double>(ramp - 1) : 0;
      weights_.push_back(i < ramp ? first + along * (1 - first) : 1);
    }
    weights_.push_back(kPriorWeight);
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    for (double& weight : weights_) weight /= sum;
  }

  Point draw(TrialRandom& random) const {
    double left = random.uniform();
    size_t kernel = 0;
    for (; kernel + 1 < weights_.size(); ++kernel) {
      left -= weights_[kernel];
      if (left < 0) break;
    }
    Point point;
    for (const Kernels& of_dimension : kernels_) point.push_back(of_dimension.draw(kernel, random));
    return point;
  }

  double log_density(const Point& point) const {
    std::vector<double> terms;
    for (size_t kernel = 0; kernel < weights_.size(); ++kernel) {
      double term = std::log(weights_[kernel]);
      for (size_t i = 0; i < kernels_.size(); ++i) term += kernels_[i].log_density(kernel, point[i]);
      terms.push_back(term);
    }
    const double largest = *std::ranges::max_element(terms);
    double sum = 0;
    for (const double term : terms) sum += std::exp(term - largest);
    return largest + std::log(sum);
  }

 private:
  std::vector<Kernels> kernels_;
  std::vector<double> weights_;
};

/// The better of two observations comes first: whole trials by their loss, then those that were left by how far they
/// came, then those that run.
bool comes_before(const Observation& a, const Observation& b) {
  const auto rank = [](const Observation& one) { return !one.loss ? 2 : one.is_complete ? 0 : 1; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 2) return false;
  if (rank(a) == 1 && a.step != b.step) return a.step > b.step;
  return *a.loss < *b.loss;
}

/// The two densities.
class Estimate {
 public:
  Estimate(const SearchSpace& space, std::vector<Observation> observations)
      : axes_(space.dimensions.begin(), space.dimensions.end()) {
    std::ranges::stable_sort(observations, {}, &Observation::number);
    std::ranges::stable_sort(observations, comes_before);
    const int64_t num_told =
        std::ranges::count_if(observations, [](const Observation& one) { return one.loss.has_value(); });
    const auto num_good = static_cast<size_t>(std::min((num_told + kGoodShare - 1) / kGoodShare, kMostGood));
    std::vector<const Observation*> good, others;
    for (size_t i = 0; i < observations.size(); ++i) (i < num_good ? good : others).push_back(&observations[i]);
    for (auto* group : {&good, &others}) std::ranges::stable_sort(*group, {}, &Observation::number);
    good_.emplace(axes_, good);
    others_.emplace(axes_, others);
  }
  Estimate(const Estimate&) = delete;
  Estimate& operator=(const Estimate&) = delete;

  Point draw(TrialRandom& random) const { return good_->draw(random); }
  double excess(const Point& point) const { return good_->log_density(point) - others_->log_density(point); }

 private:
  std::vector<Axis> axes_;
  std::optional<Density> good_, others_;
};

}  // namespace

Point tpe_point(const SearchSpace& space, std::vector<Observation> observations, TrialRandom& random) {
  std::erase_if(observations, [](const Observation& one) { return one.loss && std::isnan(*one.loss); });
  const auto num_told =
      std::ranges::count_if(observations, [](const Observation& one) { return one.loss.has_value(); });
  if (num_told < kStartupTrials) return random_point(space, random);
  const Estimate estimate(space, std::move(observations));
  Point best;
  double most = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < kCandidates; ++i) {
    Point candidate = estimate.draw(random);
    const double excess = estimate.excess(candidate);
    if (!best.empty() && !(excess > most)) continue;
    best = std::move(candidate);
    most = excess;
  }
  return best;
}

double tpe_excess(const SearchSpace& space, std::vector<Observation> observations, const Point& point) {
  return Estimate(space, std::move(observations)).excess(point);
}

}  // namespace trainrun
