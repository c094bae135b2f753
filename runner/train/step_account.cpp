#include "runner/train/step_account.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace trainrun {
namespace {

const double* numbers_of(const at::Tensor& on_cpu) { return on_cpu.const_data_ptr<double>(); }

}  // namespace

StepAccount::StepAccount(at::Device device, ProcessGroup& group, Progress& progress, std::function<void()> on_skipped)
    : device_(device), group_(group), progress_(progress), on_skipped_(std::move(on_skipped)) {}

void StepAccount::watch(const at::Tensor& loss, const Occasion& occasion) {
  if (device_.is_cpu()) return;
  if (!bad_index_.defined()) {
    bad_index_ = at::full({}, -1, loss.options());
    bad_loss_ = at::full({}, 0, loss.options());
  }
  const at::Tensor is_first = loss.isfinite().logical_not().logical_and(bad_index_.lt(0));
  bad_index_ = at::where(is_first, static_cast<double>(watched_.size()), bad_index_);
  bad_loss_ = at::where(is_first, loss, bad_loss_);
  watched_.push_back(occasion);
}

void StepAccount::add(const StepResult& result, std::optional<bool> overflowed) {
  ++progress_.loss_count;
  newest_ = result;
  if (device_.is_cpu()) {
    progress_.loss_sum += *numbers_of(result.loss);
    if (overflowed.value_or(false)) ++progress_.skipped_steps;
    return;
  }
  if (!loss_sum_.defined()) {  // what earlier starts have in the sum is counted on one rank
    loss_sum_ = at::full({}, group_.is_main() ? progress_.loss_sum : 0, result.loss.options());
  }
  loss_sum_ = loss_sum_ + result.loss;
  if (overflowed) {
    progress_.skipped_steps += *overflowed ? 1 : 0;
  } else if (result.overflow.defined()) {
    if (!skipped_.defined()) skipped_ = at::empty({}, at::TensorOptions(at::kFloat).pinned_memory(true));
    skipped_.copy_(result.overflow, /*non_blocking=*/true);
    arrived_.emplace(device_.type());
    arrived_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
}

void StepAccount::count_skipped() {
  if (!arrived_) return;
  arrived_->synchronize();
  arrived_.reset();
  if (*skipped_.const_data_ptr<float>() == 0) return;
  ++progress_.skipped_steps;
  on_skipped_();
}

std::optional<StepAccount::NotFinite> StepAccount::read() {
  if (!newest_) return std::nullopt;
  if (!device_.is_cpu()) return read_device();
  figures_.loss = *numbers_of(newest_->loss);
  figures_.parts.clear();
  if (newest_->parts.defined()) {
    const double* parts = numbers_of(newest_->parts);
    figures_.parts.assign(parts, parts + newest_->parts.numel());
  }
  figures_.grad_norm.reset();
  if (newest_->grad_norm.defined()) figures_.grad_norm = newest_->grad_norm.item<double>();
  newest_.reset();
  return std::nullopt;
}

/// One copy from the device, and one sum over ranks.
std::optional<StepAccount::NotFinite> StepAccount::read_device() {
  count_skipped();
  const StepResult result = *std::exchange(newest_, std::nullopt);
  std::vector<at::Tensor> pieces = {loss_sum_.reshape(1), result.loss.reshape(1)};
  if (result.parts.defined()) pieces.push_back(result.parts);
  const int64_t num_shared = 2 + (result.parts.defined() ? result.parts.numel() : 0);
  for (const at::Tensor& own : {bad_index_, bad_loss_, result.grad_norm, result.overflow}) {
    if (own.defined()) pieces.push_back(own.reshape(1).to(at::kDouble));
  }
  const at::Tensor all = at::cat(pieces).cpu();
  group_.sum({all.narrow(0, 0, num_shared)}, "the loss");
  const double* number = numbers_of(all);
  progress_.loss_sum = *number++;
  figures_.loss = *number++;
  figures_.parts.assign(number, number + num_shared - 2);
  number += num_shared - 2;
  const double index = *number++;
  const double loss = *number++;
  figures_.grad_norm.reset();
  if (result.grad_norm.defined()) figures_.grad_norm = *number++;
  if (result.overflow.defined() && *number++ != 0) figures_.grad_norm.reset();  // nothing was clipped
  const auto watched = std::exchange(watched_, {});
  if (index < 0) return std::nullopt;
  return NotFinite{loss, watched[static_cast<size_t>(index)]};
}

void StepAccount::begin_line() {
  progress_.loss_sum = 0;
  progress_.loss_count = 0;
  loss_sum_.reset();
}

}  // namespace trainrun
