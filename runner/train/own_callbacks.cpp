#include "runner/train/own_callbacks.h"

#include <cmath>

#include "registry/kinds/monitor.h"

namespace trainrun {
namespace {

/// Tells a scheduler that watches a figure what it has become; its state is the scheduler's.
class Plateau : public Callback {
 public:
  explicit Plateau(const std::unique_ptr<Scheduler>& scheduler) : scheduler_(scheduler) {}
  Verdict after_evaluation(Run&, const Figures& figures) override {
    if (const auto watched = figure_of(figures, scheduler_->monitor())) scheduler_->observe(*watched);
    return {};
  }

 private:
  const std::unique_ptr<Scheduler>& scheduler_;  // the job's: a resume puts another there
};

/// `checkpoint.keep_best`; the best so far is a part of the job's progress.
class KeepBest : public Callback {
 public:
  KeepBest(const KeepBestSection& keep_best, std::optional<double>& best) : keep_best_(keep_best), best_(best) {}

  Verdict after_evaluation(Run&, const Figures& figures) override {
    const auto watched = figure_of(figures, keep_best_.monitor);
    if (!watched || !std::isfinite(*watched)) return {};
    const bool better = !best_ || keep_best_.is_better(*watched, *best_);
    if (better) best_ = watched;
    return {better, ""};
  }

 private:
  const KeepBestSection& keep_best_;
  std::optional<double>& best_;
};

}  // namespace

void add_own_callbacks(const Recipe& recipe, const std::unique_ptr<Scheduler>& scheduler, std::optional<double>& best,
                       Callbacks& callbacks) {
  if (scheduler && !scheduler->monitor().empty()) {
    callbacks.add_own(name_of(*recipe.scheduler), std::make_unique<Plateau>(scheduler));
  }
  if (recipe.checkpoint.keep_best) {
    callbacks.add_own({{}, "checkpoint.keep_best", "keep_best"},
                      std::make_unique<KeepBest>(*recipe.checkpoint.keep_best, best));
  }
}

}  // namespace trainrun
