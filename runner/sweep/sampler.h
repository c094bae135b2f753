#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "runner/sweep/search_space.h"

namespace trainrun {

/// Random numbers that are the same on every machine, a sequence of its own for each trial of a sweep.
class TrialRandom {
 public:
  TrialRandom(uint64_t seed, int64_t trial);
  /// In [0, 1).
  double uniform();
  double normal();

 private:
  std::mt19937_64 generator_;
};

/// What is known of a trial when another one's values are chosen.
struct Observation {
  int64_t number = 0;  // of the trial, in the order in which they were chosen
  Point point;
  std::optional<double> loss;  // the figure, the smaller the better; nothing: the trial runs
  bool is_complete = true;     // else the loss is that after `step`, where the trial was left
  int64_t step = 0;
};

/// Evenly distributed, over the logarithm where a dimension is logarithmic.
Point random_point(const SearchSpace& space, TrialRandom& random);

/// The values of the next trial by the tree-structured Parzen estimator, which models the good trials and the others by
/// two densities and takes, of 24 draws from the first, that where the first exceeds the second most. All dimensions are
/// modelled together, and trials that run count as bad ones, so that the next one goes elsewhere. Before ten trials
/// have a loss the point is random.
/// Source: Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization"; Watanabe 2023, arXiv:2304.11127; what
/// TPESampler of Optuna 5 does by default.
Point tpe_point(const SearchSpace& space, std::vector<Observation> observations, TrialRandom& random);
/// How much more probable (as a logarithm) a point is by the density of the good trials than by that of the others.
double tpe_excess(const SearchSpace& space, std::vector<Observation> observations, const Point& point);

}  // namespace trainrun
