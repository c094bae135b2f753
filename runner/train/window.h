#pragma once

#include "runner/data/window_batches.h"
#include "runner/train/job.h"
#include "runner/train/occasion.h"

namespace trainrun {

/// The batches of one optimizer step, from where the job stands: `gradient_accumulation_steps`, fewer at the end of an
/// epoch. A signal to stop may end it before the weights change; then it takes back what it has changed so far: random
/// numbers that were drawn, running means of layers.
class Window {
 public:
  /// `stream` gives the next batches. Both outlive this.
  Window(Job& job, BatchStream& stream);

  int64_t size() const { return size_; }        // batches
  int64_t samples() const { return samples_; }  // of all ranks
  Occasion occasion(int64_t batch) const;
  /// Before its batches are asked for: the first time, and where an optimizer wants the gradients once more.
  void begin();
  /// Batch `i`, in order; nothing where a signal to stop came.
  std::optional<Batch> next(int64_t i);
  /// After batch `i`: whether a signal to stop came. All ranks get one answer.
  bool is_stopped_after(int64_t i);

 private:
  bool may_stop() const { return size_ > 1 && passes_ == 1; }
  void take_back();

  Job& job_;
  int64_t size_;
  int64_t samples_ = 0;
  WindowBatches batches_;
  int64_t passes_ = 0;
  int64_t asked_ = 0;
  Tensors random_;
  Tensors buffers_;
  Tensors before_;  // what they held
};

}  // namespace trainrun
