#pragma once

#include <cstdint>
#include <optional>

#include "runner/train/job.h"

namespace trainrun {

/// Model FLOPs utilization: which part of what the devices could do at best training makes use of. A training step is
/// counted as three forward passes, whatever is frozen or computed twice (Chowdhery et al. 2022, PaLM, appendix B).
class Utilization {
 public:
  /// The best is `logging.peak_flops`, or what is known of the GPU.
  explicit Utilization(const Job& job);
  /// Of so much over all ranks. Nothing where the best is not known.
  std::optional<double> of(int64_t samples, int64_t tokens, double seconds) const;

 private:
  double peak_ = 0;              // FLOP/s of all ranks' devices; 0: not known
  double flops_of_sample_ = 0;   // of training
  double tokens_of_sample_ = 0;  // of the sample that was counted, with padding; 0: it is no text
};

}  // namespace trainrun
