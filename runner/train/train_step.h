#pragma once

#include <optional>

#include "runner/data/data_loader.h"
#include "runner/train/job.h"
#include "runner/train/step_outcome.h"

namespace trainrun {

/// How many float64 numbers the ranks add up at the end of a step, where the recipe has `num_parts` losses; 0 for one.
int64_t step_numbers(const Recipe& recipe, int64_t num_parts);

/// One optimizer step over the next window; nothing where a signal to stop ended it: the job is then as it was before.
/// Throws TrainingError that names what failed; on a CPU also for a loss that is not finite, which on a GPU
/// `read_account` does.
std::optional<StepOutcome> train_step(Job& job, BatchStream& batches);

/// Reads what steps have found since the last time. Throws TrainingError where a loss was not finite, naming the first
/// batch that gave one. Several ranks with GPUs all call it.
void read_account(Job& job);

}  // namespace trainrun
