#include "runner/data/window_batches.h"

namespace trainrun {

WindowBatches::WindowBatches(const DataLoader& loader, BatchStream& stream, int64_t epoch, int64_t first, int64_t size)
    : loader_(loader), stream_(stream), epoch_(epoch), first_(first), size_(size) {}

void WindowBatches::begin() {
  position_ = 0;
  if (++passes_ == 1 || !kept_.empty()) return;
  const auto again = loader_.iterate(epoch_, first_);
  for (int64_t i = 0; i < size_; ++i) kept_.push_back(std::move(*again->next()));
}

Batch WindowBatches::next() {
  const int64_t i = position_++;
  if (passes_ > 1) return kept_[static_cast<size_t>(i)];
  Batch batch = std::move(*stream_.next());
  if (size_ == 1) kept_.push_back(batch);  // it is in memory anyway
  return batch;
}

}  // namespace trainrun
