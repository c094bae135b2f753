#pragma once

#include "registry/kinds/step_result.h"

namespace trainrun {

/// What the host decides in a step, by what it asks of signals and clocks: alike on all ranks.
struct StepDecision {
  int signal = 0;            // that the ranks agreed on; 0 for none
  bool is_last = false;      // training ends with this step: training.max_time is over by rank 0's clock, or max_tokens
  bool is_save_due = false;  // by rank 0's clock: checkpoint.every is a time, and it has passed
  bool is_asked = false;     // somebody asked rank 0 for a change, by the run's socket
};

/// A step: the figures that a device computed, and what the host decided.
struct StepOutcome {
  StepResult figures;
  StepDecision decision;
};

}  // namespace trainrun
