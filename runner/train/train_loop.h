#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/train/job.h"
#include "runner/train/training_error.h"

namespace trainrun {

/// Trains until the job is done or a signal asks to stop; saves, evaluates and reports as the recipe says. What is due
/// after a step is saved first and evaluated then. Returns the signal, 0 when done. Throws TrainingError, and what
/// loading and saving throw.
int train(Job& job);

/// One optimizer step over the next `gradient_accumulation_steps` batches (fewer at the end of an epoch); the mean loss
/// over their samples, and in `job.loss_parts` that of each loss. Nothing where a signal to stop came before the last
/// of several batches: the job is then as it was before. Throws TrainingError that names what failed.
std::optional<double> train_step(Job& job, BatchStream& batches);

/// What `agreed_signal` gives where no rank shall stop and one shall save.
constexpr int kSaveAndGoOn = 1;

/// The signal to stop that has come, to whichever rank, or kSaveAndGoOn, or 0; all ranks agree. After every step.
int agreed_signal(Job& job);

/// What an evaluation is told besides.
struct EvaluationControl {
  ProcessGroup* group = nullptr;  // whose ranks share it
  int64_t step = 0;               // after which it comes; for errors
  /// Asked before a batch that every rank has, by all of them alike: whether to give up. Null: never.
  std::function<bool()> gives_up = nullptr;
};

/// Loss and metrics over the whole evaluation split: {"eval/loss", …}, where there are several losses each of them,
/// {"eval/loss/NAME", …}, and {"eval/accuracy", …}; nothing where it was given up. Throws TrainingError that names what
/// failed.
std::optional<Figures> evaluate(const Recipe& recipe, Model& model, const DataLoader& loader,
                                const std::vector<std::unique_ptr<Metric>>& metrics,
                                const EvaluationControl& control = {});

}  // namespace trainrun
