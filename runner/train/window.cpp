#include "runner/train/window.h"

#include <ATen/core/grad_mode.h>

#include "runner/base/signals.h"
#include "runner/train/step_errors.h"

namespace trainrun {
namespace {

int64_t batches_of_window(const Job& job) {
  return std::min(job.recipe.training.gradient_accumulation_steps,
                  job.train_loader->num_batches() - job.progress.batch);
}

}  // namespace

Window::Window(Job& job, BatchStream& stream)
    : job_(job),
      size_(batches_of_window(job)),
      batches_(*job.train_loader, stream, job.progress.epoch, job.progress.batch, size_) {
  for (int64_t i = 0; i < size_; ++i) samples_ += job.train_loader->global_batch_size(job.progress.batch + i);
  if (size_ == 1) return;
  random_ = job.random_states();
  buffers_ = job.model->buffers();
  for (const at::Tensor& buffer : buffers_) before_.push_back(buffer.clone());
}

Occasion Window::occasion(int64_t batch) const {
  const Progress& progress = job_.progress;
  return {Occasion::Phase::kTraining, progress.step + 1, progress.epoch, progress.batch + batch};
}

void Window::begin() {
  ++passes_;
  batches_.begin();
}

std::optional<Batch> Window::next(int64_t i) {
  Batch batch = named("making a batch", occasion(i), [&] { return batches_.next(); });
  if (may_stop() && job_.group->is_alone() && StopSignals::received() != 0) {  // several ranks agree later
    take_back();
    return std::nullopt;
  }
  return batch;
}

bool Window::is_stopped_after(int64_t i) {
  constexpr int64_t kBatchesBetweenAgreements = 8;  // each makes the ranks wait for each other
  if (!may_stop() || i == size_ - 1) return false;
  if (!job_.group->is_alone() && ++asked_ % kBatchesBetweenAgreements != 0) return false;
  if (job_.group->max(StopSignals::received(), "a signal to stop") == 0) return false;
  take_back();
  return true;
}

void Window::take_back() {
  const at::NoGradGuard no_gradients;
  job_.set_random_states(random_);
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(before_[i]);
}

}  // namespace trainrun
