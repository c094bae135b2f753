#pragma once

#include <optional>
#include <vector>

#include "runner/model/model.h"
#include "runner/train/window.h"

namespace trainrun {

/// What ranks share at the beginning of a step, in `traffic`: how many targets each has.
constexpr const char* kCountingTargets = "the number of targets";

/// The batches of a step, as the model is given them, and the share that each has in the losses that are means over
/// targets. Such a loss must know how many targets the whole step has before the first batch's gradients are computed:
/// so with several batches, or ranks, all of a step's batches are made at its beginning, and counted. Other losses have
/// one batch in memory at a time.
class StepBatches {
 public:
  /// Both outlive this.
  StepBatches(Job& job, Window& window);
  /// Before the first batch. Collective where losses count targets. False: a signal to stop came.
  bool begin();
  /// Batch `i`, in order; nothing where a signal to stop came.
  std::optional<Batch> next(int64_t i);
  /// Of the batch that was given last: its part of the step's targets, over all ranks, for each loss that counts them.
  const TargetCounts& shares(int64_t i) const { return shares_[static_cast<size_t>(i)]; }

 private:
  std::optional<Batch> made(int64_t i);
  TargetCounts counted(const Batch& batch, int64_t i) const;
  void divide_by_step();

  Job& job_;
  Window& window_;
  std::vector<Batch> ahead_;
  std::vector<TargetCounts> shares_;  // of each batch; first how many targets there are
};

}  // namespace trainrun
