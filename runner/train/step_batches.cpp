#include "runner/train/step_batches.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "runner/train/step_errors.h"

namespace trainrun {

StepBatches::StepBatches(Job& job, Window& window)
    : job_(job), window_(window), shares_(static_cast<size_t>(window.size())) {}

bool StepBatches::begin() {
  const size_t num_counting = job_.model->num_counting_losses();
  if (num_counting == 0) return true;
  const bool is_whole = window_.size() == 1 && job_.group->is_alone();
  if (is_whole) {
    shares_[0].assign(num_counting, 1);
    return true;
  }
  for (int64_t i = 0; i < window_.size(); ++i) {
    std::optional<Batch> batch = made(i);
    if (!batch) return false;
    shares_[static_cast<size_t>(i)] = counted(*batch, i);
    ahead_.push_back(std::move(*batch));
  }
  divide_by_step();
  return true;
}

std::optional<Batch> StepBatches::next(int64_t i) {
  if (!ahead_.empty()) return std::exchange(ahead_[static_cast<size_t>(i)], Batch());
  std::optional<Batch> batch = made(i);
  if (batch && job_.device.is_cpu()) counted(*batch, i);  // a GPU would be waited for; its loss is NaN
  return batch;
}

std::optional<Batch> StepBatches::made(int64_t i) {
  std::optional<Batch> batch = window_.next(i);
  if (batch) job_.callbacks->before_forward(*batch);
  return batch;
}

TargetCounts StepBatches::counted(const Batch& batch, int64_t i) const {
  return named("the loss", window_.occasion(i), [&] { return job_.model->count_targets(batch); });
}

void StepBatches::divide_by_step() {
  const auto num_counting = static_cast<int64_t>(shares_[0].size());
  const at::Tensor all = at::zeros({num_counting}, at::kDouble);
  auto* sums = all.mutable_data_ptr<double>();
  for (const TargetCounts& batch : shares_) {
    for (size_t k = 0; k < batch.size(); ++k) sums[k] += batch[k];
  }
  job_.group->sum({all}, kCountingTargets);
  for (TargetCounts& batch : shares_) {
    for (size_t k = 0; k < batch.size(); ++k) batch[k] /= sums[k];
  }
}

}  // namespace trainrun
