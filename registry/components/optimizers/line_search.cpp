#include "registry/components/optimizers/line_search.h"

#include <algorithm>
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

}  // namespace

TorchNumber minimum_of_cubic(const LinePoint& a, const LinePoint& b, TorchNumber low, TorchNumber high) {
  const TorchNumber d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t);
  const TorchNumber square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const TorchNumber d2 = sqrt(square);
  const bool in_order = a.t <= b.t;
  const LinePoint& left = in_order ? a : b;
  const LinePoint& right = in_order ? b : a;
  const TorchNumber minimum =
      right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2));
  return std::min(std::max(minimum, low), high);
}

TorchNumber minimum_of_cubic(const LinePoint& a, const LinePoint& b) {
  return a.t <= b.t ? minimum_of_cubic(a, b, a.t, b.t) : minimum_of_cubic(a, b, b.t, a.t);
}

namespace {

/// Where to evaluate next: the cubic's minimum, but not close to an end of the bracket, where it would hardly shrink, twice in
/// a row. `stuck`: that the last one was close to an end.
TorchNumber between(const LinePoint& a, const LinePoint& b, bool& stuck) {
  const TorchNumber left = std::min(a.t, b.t);
  const TorchNumber right = std::max(a.t, b.t);
  const TorchNumber t = minimum_of_cubic(a, b);
  const TorchNumber margin = 0.1 * (right - left);
  const bool is_close = std::min(right - t, t - left) < margin;
  const bool moves = is_close && (stuck || t >= right || t <= left);
  stuck = is_close && !moves;
  if (!moves) return t;
  return abs(t - right) < abs(t - left) ? right - margin : left + margin;
}

}  // namespace

LinePoint strong_wolfe(const std::function<LinePoint(TorchNumber)>& evaluate, const LinePoint& start, TorchNumber first,
                       TorchNumber direction_size, double tolerance_change, int64_t max_evaluations,
                       int64_t& num_evaluations) {
  const auto too_high = [&](const LinePoint& point) {
    return point.value > start.value + kSufficientDecrease * point.t * start.slope;
  };
  const auto flat = [&](const LinePoint& point) { return abs(point.slope) <= -kCurvature * start.slope; };

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
      const TorchNumber least = now.t + 0.01 * (now.t - previous.t);
      const TorchNumber next = minimum_of_cubic(previous, now, least, now.t * 10);
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
    if (abs(ends[1].t - ends[0].t) * direction_size < tolerance_change) break;
    now = evaluate(between(ends[0], ends[1], stuck));
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
