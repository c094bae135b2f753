#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runner/replay/replayed_run.h"

namespace trainrun {

/// Steps of a run that were made again, each in brief.
struct RunTrace {
  struct Step {
    int64_t step = 0;
    uint64_t batch = 0;  // a hash of its batches, …
    uint64_t state = 0;  // … of weights and buffers after it, …
    uint64_t optimizer = 0;
    uint64_t random = 0;
    double loss = 0;
    std::vector<double> rates;
  };
  /// Where what was made again is not what the run logged or stored.
  struct Fault {
    int64_t from = 0;                      // the step after which it was begun
    int64_t confirmed = 0;                 // the last step of which what was logged and stored was met
    int64_t step = 0;                      // the first of which it was not
    std::optional<StateDifference> state;  // of what was made again, and of what is stored
    std::string checkpoint;                // where
    double logged = 0, replayed = 0;       // losses, where it is not `state`
  };
  uint64_t beginning = 0;  // a hash of weights and buffers before the first step
  int64_t from = 0;
  std::vector<Step> steps;
  std::optional<Fault> fault;
  std::optional<StateDifference> foreign;  // from the first state of another run at its step; b is that state
  bool is_short = false;                   // it failed before `last`, by a loss that is not finite
};

/// Makes the steps after `from` again, up to `last`. `other`: where
/// another run begins; null, or at a step that is not passed: nothing is compared.
RunTrace trace_run(ReplayedRun& run, const StoredState& from, int64_t last, const StoredState* other);

/// The first step in which two traces differ; 0 + the first step of both for the weights before it. Nothing where all
/// that both have is equal.
std::optional<int64_t> first_difference(const RunTrace& a, const RunTrace& b);

}  // namespace trainrun
