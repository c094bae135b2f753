#pragma once

#include <chrono>
#include <cstdint>

#include "runner/train/job.h"
#include "runner/train/step_outcome.h"
#include "runner/train/utilization.h"

namespace trainrun {

/// Keeps account of optimizer steps, and tells the loggers when a line is due. Samples a second are those of training
/// alone: what evaluations and checkpoints take is not counted.
class StepLog {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StepLog(Job& job);

  /// A step of `epoch` is finished. What it found is read where that costs nothing, where a line is due, and after the
  /// first step of this process: then whoever watches has a loss to look at, and one that is not finite shows early.
  void record(const StepOutcome& outcome, int64_t epoch);
  /// Seconds of training so far, over all starts, evaluations and checkpoints counted.
  double seconds() const;

  /// While one lives, the time is not counted as training.
  class Pause {
   public:
    explicit Pause(StepLog& log) : log_(log), begin_(log.job_.clock()) {}
    ~Pause() { log_.last_line_ += log_.job_.clock() - begin_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    StepLog& log_;
    Time begin_;
  };

 private:
  Job& job_;
  size_t rate_group_;  // whose learning rate is told
  Utilization utilization_;
  Time start_;
  double seconds_before_;  // of earlier starts
  Time last_line_;         // moved on by what is no training
  int64_t samples_ = 0;    // since then
  int64_t tokens_ = 0;     // likewise
  bool is_first_ = true;
};

/// The parameter group whose learning rate stands for all: the first that is not frozen, as the recipe has it.
size_t leading_group(const std::vector<GroupRates>& rates);

}  // namespace trainrun
