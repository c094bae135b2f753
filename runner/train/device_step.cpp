#include "runner/train/device_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

#include "runner/model/gradients.h"
#include "runner/train/loss_figures.h"
#include "runner/train/step_errors.h"

namespace trainrun {

DeviceStep::DeviceStep(Job& job, StepResult& figures) : job_(job), figures_(figures) {}

LossValue DeviceStep::forward(const Batch& batch, bool synchronize, const Occasion& occasion) {
  job_.parallel->prepare_forward(synchronize);
  const auto forward = [&] {
    return job_.sample_losses ? job_.model->forward(batch) : job_.model->forward_for_losses(batch);
  };
  return named("the forward pass", occasion, [&] {
    const Tensors outputs = job_.watch ? job_.watch->around(forward) : forward();
    if (job_.sample_losses) job_.sample_losses->add(batch, outputs, occasion);
    return job_.model->loss(batch, outputs);
  });
}

void DeviceStep::backward(const LossValue& losses, const Batch& batch, const TargetCounts& shares, bool synchronize,
                          const Occasion& occasion) {
  const double weight = static_cast<double>(batch.size()) / static_cast<double>(figures_.samples);
  add_to(figures_.loss, losses.value(weight, shares));
  if (!losses.parts.empty()) add_to(figures_.parts, losses.part_values(weight, shares));
  const auto ranks = static_cast<double>(job_.world_size());  // DataParallel takes the mean over ranks
  TargetCounts of_counted = shares;
  for (double& share : of_counted) share *= ranks;
  at::Tensor loss = losses.total(weight * ranks, ranks, of_counted);
  if (job_.grad_scaler) loss = job_.grad_scaler->scale(loss);
  job_.parallel->prepare_backward(synchronize, loss);
  run_backward(job_, batch, loss, occasion);
  job_.parallel->finish_backward(synchronize);
}

void DeviceStep::finish() {
  factors_.clear();
  const TrainingSection& training = job_.recipe.training;
  at::Tensor norm;
  if (job_.grad_scaler && !defer_unscaling(norm)) {
    figures_.overflow = job_.grad_scaler->unscale(job_.parameters, job_.shards());
  }
  if (!training.max_grad_norm && !training.max_grad_value) return;
  if (job_.device.is_cpu() && is_overflow(figures_.overflow)) return;
  if (training.max_grad_value) return clip_gradient_values(job_.parameters, *training.max_grad_value);
  figures_.grad_norm = norm.defined() ? norm : gradient_norm(job_.parameters, job_.shards());
  factors_.push_back(clip_factor(figures_.grad_norm, *training.max_grad_norm));
}

bool DeviceStep::defer_unscaling(at::Tensor& norm) {
  if (!job_.device.is_cpu() || job_.shards() || job_.recipe.training.max_grad_value) return false;
  const at::Tensor scaled = gradient_norm(job_.parameters);
  if (!std::isfinite(scaled.item<double>())) return false;  // a gradient, or only the sum of their squares
  figures_.overflow = at::zeros({}, at::kFloat);
  factors_.push_back(job_.grad_scaler->inverse());
  norm = scaled * factors_[0];
  return true;
}

void DeviceStep::apply_factors() {
  for (const at::Tensor& factor : std::exchange(factors_, {})) multiply_gradients(job_.parameters, factor);
}

bool is_overflow(const at::Tensor& overflow) { return overflow.defined() && overflow.item<float>() != 0; }

}  // namespace trainrun
