#include "registry/optimizers/line_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainrun {
namespace {

constexpr double kSufficientDecrease = 1e-4;
constexpr double kCurvature = 0.9;

struct Bracket {
  LinePoint ends[2];  // [0] was met first
  bool done = false;  // ends[0] satisfies the conditions

  size_t low() const { return ends[0].value <= ends[1].value ? 0 : 1; }
};

/// Rounds as PyTorch does, where slopes are tensors of the gradient's type T: between points that are close to each
/// other hardly a digit is left of the difference, and whether it is 0 decides where the search goes on.
template <class T>
double minimum_within(const LinePoint& a, const LinePoint& b, double low, double high) {
  const auto slope_a = static_cast<T>(a.slope);
  const auto slope_b = static_cast<T>(b.slope);
  const T d1 = slope_a + slope_b - static_cast<T>(3 * (a.value - b.value) / (a.t - b.t));
  const T square = d1 * d1 - slope_a * slope_b;
  if (!(square >= 0)) return (low + high) / 2;
  const T d2 = std::sqrt(square);
  const bool in_order = a.t <= b.t;
  const T left = in_order ? slope_a : slope_b;
  const T right = in_order ? slope_b : slope_a;
  const auto width = static_cast<T>(std::abs(b.t - a.t));
  const T minimum = static_cast<T>(std::max(a.t, b.t)) - width * ((right + d2 - d1) / (right - left + 2 * d2));
  return std::min(std::max(static_cast<double>(minimum), low), high);
}

}  // namespace

double minimum_of_cubic(const LinePoint& a, const LinePoint& b, double low, double high) {
  const bool is_double = a.gradient.defined() && a.gradient.scalar_type() == at::kDouble;
  return is_double ? minimum_within<double>(a, b, low, high) : minimum_within<float>(a, b, low, high);
}

LinePoint strong_wolfe(const std::function<LinePoint(double)>& evaluate, const LinePoint& start, double first,
                       double direction_size, double tolerance_change, int64_t max_evaluations,
                       int64_t& num_evaluations) {
  const auto too_high = [&](const LinePoint& point) {
    return point.value > start.value + kSufficientDecrease * point.t * start.slope;
  };
  const auto flat = [&](const LinePoint& point) { return std::abs(point.slope) <= -kCurvature * start.slope; };

  LinePoint now = evaluate(first);
  num_evaluations = 1;
  int64_t iteration = 0;
  LinePoint previous = start;
  Bracket bracket;
  bool bracketed = false;
  while (iteration < max_evaluations && !bracketed) {  // outwards, until a minimum lies in between
    bracketed = true;
    if (too_high(now) || (iteration > 1 && now.value >= previous.value)) {  // NOLINT(bugprone-branch-clone)
      bracket = {{previous, now}};
    } else if (flat(now)) {
      bracket = {{now, now}, true};
    } else if (now.slope >= 0) {
      bracket = {{previous, now}};
    } else {
      bracketed = false;
      const double least = now.t + 0.01 * (now.t - previous.t);
      const double next = minimum_of_cubic(previous, now, least, now.t * 10);
      previous = std::exchange(now, evaluate(next));
      ++num_evaluations;
      ++iteration;
    }
  }
  if (!bracketed) bracket = {{start, now}};

  size_t low = bracket.low();
  bool stuck = false;
  while (!bracket.done && iteration < max_evaluations) {  // inwards
    auto& ends = bracket.ends;
    if (std::abs(ends[1].t - ends[0].t) * direction_size < tolerance_change) break;
    const auto [left, right] = std::minmax(ends[0].t, ends[1].t);
    double t = minimum_of_cubic(ends[0], ends[1], left, right);
    const double margin = 0.1 * (right - left);  // so close to an end, the bracket would hardly shrink
    if (std::min(right - t, t - left) < margin) {
      if (stuck || t >= right || t <= left) {
        t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
        stuck = false;
      } else {
        stuck = true;
      }
    } else {
      stuck = false;
    }
    now = evaluate(t);
    ++num_evaluations;
    ++iteration;
    const size_t high = 1 - low;
    if (too_high(now) || now.value >= ends[low].value) {
      ends[high] = now;
      low = bracket.low();
    } else {
      if (flat(now)) {
        bracket.done = true;
      } else if (now.slope * (ends[high].t - ends[low].t) >= 0) {
        ends[high] = ends[low];
      }
      ends[low] = now;
    }
  }
  return bracket.ends[low];
}

}  // namespace trainrun
