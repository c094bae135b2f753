#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace trainrun {

/// Which trials of a sweep go on, by how they stand at the same step (rung 0 after `min_steps`, each next rung after
/// `reduction` times as many): asynchronous successive halving.
/// Source: Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", algorithm 2.
class Halving {
 public:
  struct Options {
    int64_t min_steps = 1;
    int64_t reduction = 3;
    /// A trial goes on or is stopped for good the moment it comes to a rung, as in SuccessiveHalvingPruner of Optuna, which
    /// cannot resume one. Otherwise it waits there, and may be promoted when others have come.
    bool decides_at_once = false;
  };
  struct Promotion {
    int64_t trial = 0;
    int64_t rung = 0;  // that it leaves
  };

  explicit Halving(const Options& options) : options_(options) {}

  /// At most INT64_MAX.
  int64_t steps_of(int64_t rung) const;
  /// A trial came to a rung, to each once; `loss`: the smaller the better. One that is NaN does not count.
  void note(int64_t trial, int64_t rung, double loss);
  /// A trial that is to go on to the next rung, of the highest rung that has one: among the best 1/reduction of those that
  /// came to it, the best that has not been promoted. Nothing: it is time for a new trial.
  std::optional<Promotion> next() const;
  void note_promoted(int64_t trial, int64_t rung) { promoted_[rung].insert(trial); }
  /// With `decides_at_once`, of a trial that came to this rung last: whether it goes on.
  bool goes_on(int64_t trial, int64_t rung) const;

  const Options& options() const { return options_; }

 private:
  struct Result {
    int64_t trial = 0;
    double loss = 0;
  };
  /// The best first; of equal ones the first that came.
  std::vector<Result> sorted(int64_t rung) const;

  Options options_;
  std::map<int64_t, std::vector<Result>> rungs_;
  std::map<int64_t, std::set<int64_t>> promoted_;
};

}  // namespace trainrun
