#include "runner/sweep/halving.h"

#include <algorithm>
#include <cmath>

#include "runner/base/arithmetic.h"

namespace trainrun {

int64_t Halving::steps_of(int64_t rung) const {
  int64_t steps = options_.min_steps;
  for (int64_t i = 0; i < rung && steps < INT64_MAX; ++i) steps = saturating_product(steps, options_.reduction);
  return steps;
}

void Halving::note(int64_t trial, int64_t rung, double loss) {
  if (!std::isnan(loss)) rungs_[rung].push_back({trial, loss});
}

std::vector<Halving::Result> Halving::sorted(int64_t rung) const {
  const auto found = rungs_.find(rung);
  if (found == rungs_.end()) return {};
  std::vector<Result> results = found->second;
  std::ranges::stable_sort(results, {}, &Result::loss);
  return results;
}

std::optional<Halving::Promotion> Halving::next() const {
  for (auto rung = rungs_.rbegin(); rung != rungs_.rend(); ++rung) {
    const std::vector<Result> results = sorted(rung->first);
    const size_t num_best = results.size() / static_cast<size_t>(options_.reduction);
    const auto promoted = promoted_.find(rung->first);
    for (size_t i = 0; i < num_best; ++i) {
      const bool is_promoted = promoted != promoted_.end() && promoted->second.contains(results[i].trial);
      if (!is_promoted) return Promotion{results[i].trial, rung->first};
    }
  }
  return std::nullopt;
}

bool Halving::goes_on(int64_t trial, int64_t rung) const {
  const std::vector<Result> results = sorted(rung);
  const auto own = std::ranges::find(results, trial, &Result::trial);
  if (own == results.end()) return false;
  // Of fewer than `reduction` trials the best one goes on: none could be promoted later.
  const auto reduction = static_cast<size_t>(options_.reduction);
  const size_t num_best = std::max<size_t>(1, results.size() / reduction);
  return own->loss <= results[num_best - 1].loss;
}

}  // namespace trainrun
