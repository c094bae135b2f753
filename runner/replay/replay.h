#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runner/replay/replayed_run.h"
#include "runner/replay/step_recorder.h"

namespace trainrun {

/// A step of a run that was made again.
struct StepReplay {
  struct Sample {
    int64_t number = 0;  // in the data set
    std::string place;   // "train.csv:17"; "" where there is no file to name
  };
  std::string run;
  StoredState from;
  RecordedStep step;
  std::vector<Sample> samples;
  int64_t batch_size = 0;        // in each batch but the last
  std::optional<double> logged;  // the loss that the run logged for the step
  std::vector<std::string> notes;

  /// Whether the loss is the one that was logged; nothing where none was.
  std::optional<bool> is_as_logged() const;
};

/// Makes step `step` of the run again, from the newest checkpoint before it or from the beginning; writes nothing. Throws
/// Error where the run has no such step.
StepReplay replay_step(ReplayedRun& run, int64_t step);

std::string to_text(const StepReplay& replay);
nlohmann::ordered_json to_json(const StepReplay& replay);

/// "nothing", or what holds the first number of the step that is not finite: "the output of 3 (Linear) is the first that
/// is not finite: 5 of 320 numbers; its input lies between -3.2 and 1.1e+38".
std::string not_finite_text(const RecordedStep& step);

}  // namespace trainrun
