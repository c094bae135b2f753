#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace trainrun {

/// A point of a line: the function's value there, its gradient, and its slope along the line.
struct LinePoint {
  double t = 0;
  double value = 0;
  at::Tensor gradient;
  double slope = 0;
};

/// The minimum of the cubic through two points with their slopes, within [low, high].
double minimum_of_cubic(const LinePoint& a, const LinePoint& b, double low, double high);

/// A point from `start` on that satisfies the strong Wolfe conditions, or the best found in `max_evaluations`; `first`
/// is the step tried first. `num_evaluations` counts calls of `evaluate`, which returns a point whose gradient is its
/// own. Source: Nocedal & Wright 2006, algorithms 3.5 and 3.6; semantics of torch.optim.lbfgs._strong_wolfe.
LinePoint strong_wolfe(const std::function<LinePoint(double)>& evaluate, const LinePoint& start, double first,
                       double direction_size, double tolerance_change, int64_t max_evaluations,
                       int64_t& num_evaluations);

}  // namespace trainrun
