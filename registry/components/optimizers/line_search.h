#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "registry/components/optimizers/torch_number.h"

namespace trainrun {

/// A point of a line: the function's value there, its gradient, and its slope along the line.
struct LinePoint {
  TorchNumber t;
  double value = 0;
  at::Tensor gradient;
  TorchNumber slope;
};

/// The minimum of the cubic through two points with their slopes, within [low, high].
TorchNumber minimum_of_cubic(const LinePoint& a, const LinePoint& b, TorchNumber low, TorchNumber high);
/// The same between the two points.
TorchNumber minimum_of_cubic(const LinePoint& a, const LinePoint& b);

/// A point from `start` on that satisfies the strong Wolfe conditions, or the best found in `max_evaluations`; `first`
/// is the step tried first. `num_evaluations` counts calls of `evaluate`, which returns a point whose gradient is its
/// own. Source: Nocedal & Wright 2006, algorithms 3.5 and 3.6; semantics of torch.optim.lbfgs._strong_wolfe.
LinePoint strong_wolfe(const std::function<LinePoint(TorchNumber)>& evaluate, const LinePoint& start, TorchNumber first,
                       TorchNumber direction_size, double tolerance_change, int64_t max_evaluations,
                       int64_t& num_evaluations);

}  // namespace trainrun
