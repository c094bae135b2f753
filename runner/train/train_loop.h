#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runner/train/job.h"
#include "runner/train/training_error.h"

namespace trainrun {

/// Trains until the job is done, a signal asks to stop, or the step `stop_after` is done; saves, evaluates and reports
/// as the recipe says. What is due after a step is saved first and evaluated then. Returns the signal, 0 when done.
/// Throws TrainingError, and what loading and saving throw.
int train(Job& job, std::optional<int64_t> stop_after = std::nullopt);

/// What an evaluation is told besides.
struct EvaluationControl {
  ProcessGroup& group;          // whose ranks share it
  int64_t step = 0;             // after which it comes; for errors
  std::string prefix = "eval";  // of the figures' names; EvalSets::One::prefix
  /// Asked before a batch that every rank has, by all of them alike: whether to give up. Null: never.
  std::function<bool()> gives_up = nullptr;
  const EvaluationScope* scope = nullptr;  // of callbacks; null: one forward pass a batch
  ParameterWatch* watch = nullptr;         // Job::watch
  /// What metrics left out so far, which is said once each.
  std::set<std::string>* told = nullptr;
};

/// Loss and metrics over a whole set of evaluation data: {"eval/loss", …}, where there are several losses each of them,
/// {"eval/loss/NAME", …}, and {"eval/accuracy", …}; nothing where it was given up. Throws TrainingError that names what
/// failed.
std::optional<Figures> evaluate(const Recipe& recipe, Model& model, const DataLoader& loader,
                                const std::vector<std::unique_ptr<Metric>>& metrics, const EvaluationControl& control);

}  // namespace trainrun
