#include "runner/train/own_callbacks.h"

#include <cmath>

namespace trainrun {
namespace {

/// Tells a scheduler that watches a figure what it has become; its state is the scheduler's.
class Plateau : public Callback {
 public:
  explicit Plateau(Job& job) : job_(job) {}
  Verdict after_evaluation(Run&, const Figures& figures) override {
    if (const auto watched = figure_of(figures, job_.scheduler->monitor())) job_.scheduler->observe(*watched);
    return {};
  }

 private:
  Job& job_;
};

/// `checkpoint.keep_best`; the best so far is a part of the job's progress.
class KeepBest : public Callback {
 public:
  explicit KeepBest(Job& job) : keep_best_(*job.recipe.checkpoint.keep_best), best_(job.progress.best) {}

  Verdict after_evaluation(Run&, const Figures& figures) override {
    const auto watched = figure_of(figures, keep_best_.monitor);
    if (!watched || !std::isfinite(*watched)) return {};
    const bool better = !best_ || (keep_best_.mode == "min" ? *watched < *best_ : *watched > *best_);
    if (better) best_ = watched;
    return {better, ""};
  }

 private:
  const KeepBestSection& keep_best_;
  std::optional<double>& best_;
};

}  // namespace

void add_own_callbacks(Job& job) {
  if (job.scheduler && !job.scheduler->monitor().empty()) {
    job.callbacks->add_own(name_of(*job.recipe.scheduler), std::make_unique<Plateau>(job));
  }
  if (job.recipe.checkpoint.keep_best) {
    job.callbacks->add_own({{}, "checkpoint.keep_best", "keep_best"}, std::make_unique<KeepBest>(job));
  }
}

}  // namespace trainrun
