#include "runner/replay/first_not_finite.h"

#include "registry/language/text_forms.h"
#include "registry/tensors/component_error.h"
#include "runner/replay/replay.h"
#include "runner/train/finite.h"
#include "runner/train/training_error.h"

namespace trainrun {

int64_t find_not_finite(ReplayedRun& run, int64_t last) {
  const StoredState from = run.state_before(last);
  const std::unique_ptr<Job> job = run.stand_at(from);
  std::optional<int64_t> found;
  try {
    make_steps(*job, [&](const StepOutcome&) {
      if (non_finite_weight(*job)) found = job->progress.step;
      return found || job->progress.step >= last;
    });
  } catch (const NonFiniteNumbers& error) {
    found = error.step();
  }
  if (found) return *found;
  throw Error("all weights and losses are finite from step " + std::to_string(from.step) + " to step " +
              std::to_string(job->progress.step) + " of " + run.path());
}

std::string explain_not_finite(const std::string& folder, const std::vector<std::string>& overrides, int64_t failed,
                               Catalog& catalog) {
  constexpr int64_t kMostSteps = 200;
  const std::string command = "`trainrun replay " + folder + " --not-finite`";
  try {
    ReplayedRun run(folder, overrides, catalog);
    const int64_t steps = failed - run.state_before(failed).step;
    if (steps > kMostSteps) {
      return command + " finds the first number that is not finite; it makes up to " + std::to_string(steps) +
             " steps again";
    }
    const StepReplay replay = replay_step(run, find_not_finite(run, failed));
    return "at step " + std::to_string(replay.step.step) + ", made again, " + not_finite_text(replay.step) +
           "; `trainrun replay " + folder + " --step " + std::to_string(replay.step.step) + "` shows every layer";
  } catch (const std::exception& error) {
    return "where it began is not found (" + error_text(error) + ")";
  }
}

}  // namespace trainrun
