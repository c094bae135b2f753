#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runner/replay/control_changes.h"
#include "runner/replay/replayed_run.h"
#include "runner/replay/step_recorder.h"
#include "runner/run/run_identity.h"

namespace trainrun {

/// The first thing in which two runs differ.
struct Parting {
  enum class Kind {
    kStep,        // both were made again, and differ within `step`
    kCheckpoint,  // of one run: its state after `step` is not what its own steps give
    kLogged,      // of one run: its loss of `step` is not what its own steps give
    kStates,      // stored states after `step` differ, and no step could be made again to tell more
  };
  Kind kind = Kind::kStep;
  int64_t step = 0;
  std::string what;                  // "parameter 3.weight before the step", "the batch's image"
  std::string name;                  // "3.weight", "image"; "" where it has none
  std::optional<std::string> layer;  // in which it is: "3"
  bool is_of_rates = false;          // it is the learning rate
  std::string difference;            // "1 of 320 numbers, by 0.001 at [3, 7]: 0.12 and 0.121"
  std::optional<TensorDifference> tensor;
  std::string run;                      // of which this is said, where it is one of the two
  std::string checkpoint;               // whose state it is
  std::string remark;                   // what follows from it; "" for nothing
  std::vector<ControlChange> controls;  // which explain it
};

/// Where two runs part.
struct RunBisection {
  std::string a, b;
  std::vector<RecipeChange> changes;       // of the recipes, where they change numbers
  std::vector<ControlChange> controls;     // by `trainrun ctl`, in one of them
  int64_t until = 0;                       // the last step that both have made
  std::optional<int64_t> last_equal_line;  // the step whose logged figures are the last equal ones
  std::optional<int64_t> first_other_line;
  std::string line_difference;              // "train/loss is 0.4103 and 0.4104"
  std::optional<int64_t> last_equal_state;  // the step after which stored states of both are the last equal ones
  std::optional<int64_t> first_other_state;
  std::optional<int64_t> replayed_from_a, replayed_from_b;  // steps; empty: nothing was made again
  int64_t replayed_until = 0;
  std::optional<Parting> parting;  // empty: they do not part
  std::vector<std::string> notes;

  bool is_equal() const { return !parting; }
};

/// Finds where they part: logged figures and common checkpoints give an interval, in which both are made again, step by
/// step, and compared with each other and with what is stored of them. Writes nothing. Throws what building jobs and
/// reading checkpoints throw.
RunBisection bisect(ReplayedRun& a, ReplayedRun& b);

std::string to_text(const RunBisection& found);
nlohmann::ordered_json to_json(const RunBisection& found);

}  // namespace trainrun
