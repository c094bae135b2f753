#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainrun {

/// A module that keeps the mean and the variance of the batches that it has seen in training: a batch normalization.
class RunningStatistics {
 public:
  virtual ~RunningStatistics() = default;
  /// Forgets them; until `end_anew`, each batch has the same share, whatever the layer's momentum. Does nothing if the
  /// module keeps none.
  virtual void begin_anew() = 0;
  virtual void end_anew() = 0;
  /// Running mean [C], running variance [C] and the number of batches in them []; empty if it keeps none.
  virtual std::vector<at::Tensor> statistics() const = 0;
  /// Whether each batch is that of all ranks, so that every rank has the same statistics.
  virtual bool spans_all_ranks() const = 0;
};

}  // namespace trainrun
