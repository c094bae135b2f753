#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainrun {

/// A value of the recipe that was changed while the run went on.
struct RunChange {
  int64_t step = 0;  // finished steps, after which it was made
  int64_t time = 0;  // in seconds of Unix's time
  std::string key;   // "optimizer.lr"
  std::string before;
  std::string value;
  std::string of_recipe;  // what the recipe said then; where it says something else later, that counts
};

/// Where training stands: what a checkpoint must put back besides weights, optimizer, scheduler and random numbers.
struct Progress {
  int64_t step = 0;                                     // finished optimizer steps
  int64_t epoch = 0;                                    // the epoch we are in, from 0
  int64_t batch = 0;                                    // the next batch of that epoch
  double seconds = 0;                                   // of training so far, over all starts
  double evaluating = 0;                                // of those seconds, in evaluations
  double saving = 0;                                    // and waiting for checkpoints
  double loss_sum = 0;                                  // since the last line of the log; on a GPU as last read
  int64_t loss_count = 0;                               // steps in that sum
  std::optional<double> best;                           // of the monitored metric
  int64_t tokens = 0;                                   // of `input_ids` in those steps, over all ranks, with padding
  int64_t skipped_steps = 0;                            // of `step`: those whose gradients overflowed in float16
  std::vector<std::pair<std::string, double>> metrics;  // the last evaluation
  std::string stopped;                                  // why a callback ended training here; "": it goes on
  std::vector<RunChange> changes;                       // that were made so far, in their order
  bool evaluation_due = false;                          // of `step`: what is saved has not been evaluated yet
};

}  // namespace trainrun
