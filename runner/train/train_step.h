#pragma once

#include <optional>

#include "registry/kinds/step_result.h"
#include "runner/train/window.h"

namespace trainrun {

/// How many float64 numbers the ranks add up at the end of a step, where the recipe has `num_parts` losses; 0 for one.
int64_t step_numbers(const Recipe& recipe, int64_t num_parts);

/// Forward and backward passes over the window's batches: leaves the gradients of its mean loss, summed over ranks,
/// unscaled and clipped, in the parameters. Several ranks make one collective besides those of gradients and layers: it
/// carries the loss, the tokens and the signals that came. Nothing where a signal to stop ended the window. Throws TrainingError
/// that names what failed; on a CPU also for a loss that is not finite, which on a GPU `read_account` does.
std::optional<StepResult> compute_gradients(Job& job, Window& window);

/// The optimizer's step from those gradients, unless they overflowed, and the scaler's. Where the host knows by now
/// whether they did, that is returned.
std::optional<bool> apply_gradients(Job& job, const StepResult& result, Window& window);

/// One optimizer step over the next window; nothing where a signal to stop ended it: the job is then as it was before.
std::optional<StepResult> train_step(Job& job, BatchStream& batches);

/// Reads what steps have found since the last time. Throws TrainingError where a loss was not finite, naming the first
/// batch that gave one. Several ranks with GPUs all call it.
void read_account(Job& job);

}  // namespace trainrun
