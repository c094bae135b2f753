// One optimizer step.
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "runner/gradients.h"
#include "runner/loss_figures.h"
#include "runner/train_loop.h"

namespace trainrun {

double train_step(Job& job, BatchStream& batches) {
  Progress& progress = job.progress;
  const DataLoader& loader = *job.train_loader;
  const int64_t window =
      std::min(job.recipe.training.gradient_accumulation_steps, loader.num_batches() - progress.batch);
  int64_t window_samples = 0;
  for (int64_t i = 0; i < window; ++i) window_samples += loader.global_batch_size(progress.batch + i);
  std::vector<Batch> kept;
  for (int64_t i = 0; i < window; ++i) kept.push_back(std::move(*batches.next()));
  bool finite = true;  // the gradients; where the loss is scaled
  const auto compute_gradients = [&] {
    double mean_loss = 0;
    job.loss_parts.clear();
    reset_gradients(job.parameters);
    for (const Batch& batch : kept) {
      const bool synchronize = &batch == &kept.back();  // before it, gradients add up on each rank
      if (job.parallel) job.parallel->prepare_forward(synchronize);
      const LossValue losses = job.model->loss(batch, job.model->forward(batch));
      at::Tensor loss = losses.total;
      const double weight = static_cast<double>(batch.size()) / static_cast<double>(window_samples);
      const auto value = loss.item<double>();
      if (!std::isfinite(value)) {
        throw TrainingError("the loss is " + std::to_string(value) + " at step " + std::to_string(progress.step + 1) +
                            ", epoch " + std::to_string(progress.epoch) + ", batch " +
                            std::to_string(progress.batch + (&batch - kept.data())) +
                            "; try a lower learning rate, max_grad_norm, or look for bad values in the data");
      }
      mean_loss += weight * value;
      add_weighted(job.loss_parts, losses.parts, weight);
      const double factor = weight * static_cast<double>(job.world_size());  // DataParallel takes the mean over ranks
      if (factor != 1) loss = loss * factor;
      if (job.grad_scaler) loss = job.grad_scaler->scale(loss);
      if (job.parallel) {
        job.parallel->prepare_backward(synchronize, loss);
        job.group->guarded("a backward pass", [&] { loss.backward(); });
        job.parallel->finish_backward(synchronize);
      } else {
        loss.backward();
      }
    }
    if (job.group) mean_loss = sum_over_ranks(*job.group, mean_loss, job.loss_parts);
    if (job.grad_scaler) finite = job.grad_scaler->unscale(job.parameters, job.shards());
    job.grad_norm.reset();
    if (job.recipe.training.max_grad_norm && finite) {
      job.grad_norm = clip_gradients(job.parameters, *job.recipe.training.max_grad_norm, job.shards());
    }
    return mean_loss;
  };
  job.set_rates();
  const double loss = compute_gradients();
  bool known = true;  // who asks for the loss where the weights are still the same gets this one
  const auto closure = [&] {
    if (std::exchange(known, false)) return at::scalar_tensor(loss, at::kDouble);
    if (job.grad_scaler) {
      throw TrainingError(job.recipe.optimizer.type +
                          " looks at a batch more than once, which a scaled loss is not made for; write "
                          "mixed_precision: bf16 or 'no'");
    }
    return at::scalar_tensor(compute_gradients(), at::kDouble);
  };
  if (finite) {
    job.optimizer->step(closure);
  } else {
    ++progress.skipped_steps;
  }
  if (job.grad_scaler) job.grad_scaler->update();
  progress.batch += window;
  ++progress.step;
  return loss;
}

}  // namespace trainrun
