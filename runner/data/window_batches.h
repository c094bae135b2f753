#pragma once

#include <cstdint>
#include <vector>

#include "runner/data/data_loader.h"

namespace trainrun {

/// The batches of one window of accumulation, one in memory at a time. An optimizer that asks for the gradients once
/// more (LBFGS) passes over them again: then they are made anew, and kept for the rest of the step.
class WindowBatches {
 public:
  /// The window is of batches `first` … `first + size - 1` of the epoch, which are the next ones of `stream`; `loader`
  /// makes them anew. Both outlive this.
  WindowBatches(const DataLoader& loader, BatchStream& stream, int64_t epoch, int64_t first, int64_t size);
  /// Begins a pass over the batches.
  void begin();
  /// The next batch of this pass; `size` of them in all.
  Batch next();

 private:
  const DataLoader& loader_;
  BatchStream& stream_;
  int64_t epoch_;
  int64_t first_;
  int64_t size_;
  int64_t passes_ = 0;
  int64_t position_ = 0;     // in this pass
  std::vector<Batch> kept_;  // of the window: all or none
};

}  // namespace trainrun
