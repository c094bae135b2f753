#pragma once

#include <c10/core/Event.h>

#include <functional>
#include <optional>
#include <vector>

#include "registry/kinds/step_result.h"
#include "runner/distributed/process_group.h"
#include "runner/train/occasion.h"
#include "runner/train/progress.h"

namespace trainrun {

/// What steps found, until somebody asks. On a CPU each step's figures are known at once. On a GPU they stay where they
/// are, a loss that is not finite with the batch that gave it, so that the host does not wait for the device between
/// two lines of the log.
class StepAccount {
 public:
  /// `on_skipped` is called when the host learns that the last step was skipped. All outlive this.
  StepAccount(at::Device device, ProcessGroup& group, Progress& progress, std::function<void()> on_skipped);

  /// The newest step, as last read.
  struct Figures {
    double loss = 0;
    std::vector<double> parts;
    std::optional<double> grad_norm;
  };
  struct NotFinite {
    double loss;
    Occasion occasion;
  };

  /// On a GPU: notes the first batch whose `loss` (float64 scalar) is not finite.
  void watch(const at::Tensor& loss, const Occasion& occasion);
  /// A step is done. `overflowed`: whether it was skipped, where the host knows that already.
  void add(const StepResult& result, std::optional<bool> overflowed);
  /// Brings progress.skipped_steps up to the step before the one that is being made. A GPU has done that step by now,
  /// or is about to.
  void count_skipped();
  /// Brings everything up to the newest step; on several ranks with GPUs all call it. What was not finite since the last
  /// time is returned.
  std::optional<NotFinite> read();
  const Figures& figures() const { return figures_; }
  /// A line of the log was written: sums begin anew.
  void begin_line();

 private:
  std::optional<NotFinite> read_device();

  at::Device device_;
  ProcessGroup& group_;
  Progress& progress_;
  std::function<void()> on_skipped_;
  Figures figures_;
  std::optional<StepResult> newest_;  // not yet read
  // Of a GPU:
  at::Tensor loss_sum_;            // float64 scalar, since the last line; of several ranks: this one's share
  at::Tensor bad_index_;           // float64 scalar: of `watched_`; -1: all were finite
  at::Tensor bad_loss_;            // float64 scalar
  std::vector<Occasion> watched_;  // since the last reading
  at::Tensor skipped_;             // pinned: whether the last step was skipped, on its way from the device
  std::optional<c10::Event> arrived_;
};

}  // namespace trainrun
