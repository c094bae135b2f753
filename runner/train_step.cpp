// One optimizer step.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "registry/component_error.h"
#include "runner/finite.h"
#include "runner/gradients.h"
#include "runner/loss_figures.h"
#include "runner/signals.h"
#include "runner/step_errors.h"
#include "runner/text.h"
#include "runner/train_loop.h"

namespace trainrun {

namespace {

/// Tells a signal to stop within a window of accumulation, and takes back what the window has changed so far: random
/// numbers that were drawn, running means of layers. The weights change at its end alone.
class WindowStop {
 public:
  WindowStop(Job& job, int64_t window) : job_(job), heeds_(window > 1) {
    if (!heeds_) return;
    random_ = job.random_states();
    buffers_ = job.model->buffers();
    for (const at::Tensor& buffer : buffers_) before_.push_back(buffer.clone());
  }

  /// While the window's batches are read. Ranks agree later.
  bool comes_while_reading() {
    if (!heeds_ || job_.group || StopSignals::received() == 0) return false;
    take_back();
    return true;
  }

  /// After a batch that is not the window's last; all ranks get one answer.
  bool comes_after_batch() {
    constexpr int64_t kBatchesBetweenAgreements = 8;  // each makes the ranks wait for each other
    if (!heeds_) return false;
    const int own = StopSignals::received();
    if (!job_.group && own == 0) return false;
    if (job_.group && ++asked_ % kBatchesBetweenAgreements != 0) return false;
    if (job_.group && job_.group->max(own, "a signal to stop") == 0) return false;
    take_back();
    return true;
  }

 private:
  void take_back() {
    const at::NoGradGuard no_gradients;
    job_.set_random_states(random_);
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(before_[i]);
  }

  Job& job_;
  bool heeds_;
  int64_t asked_ = 0;
  Tensors random_;
  Tensors buffers_;
  Tensors before_;  // what they held
};

/// What the closure throws says itself where.
void step_optimizer(Job& job, const LossClosure& closure) {
  try {
    job.optimizer->step(closure);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_component_error(name_of(job.recipe.optimizer), {}, error);
  }
}

Occasion occasion_of(const Progress& progress, int64_t batch_of_window) {
  return {Occasion::Phase::kTraining, progress.step + 1, progress.epoch, progress.batch + batch_of_window};
}

}  // namespace

std::optional<double> train_step(Job& job, BatchStream& batches) {
  Progress& progress = job.progress;
  const DataLoader& loader = *job.train_loader;
  const int64_t window =
      std::min(job.recipe.training.gradient_accumulation_steps, loader.num_batches() - progress.batch);
  int64_t window_samples = 0;
  for (int64_t i = 0; i < window; ++i) window_samples += loader.global_batch_size(progress.batch + i);
  WindowStop stop(job, window);
  std::vector<Batch> kept;
  for (int64_t i = 0; i < window; ++i) {
    kept.push_back(named("making a batch", occasion_of(progress, i), [&] { return std::move(*batches.next()); }));
    if (stop.comes_while_reading()) return std::nullopt;
  }
  bool finite = true;    // the gradients; where the loss is scaled
  bool stopped = false;  // by a signal, before the weights changed
  bool changes = false;  // the weights: the optimizer is at work
  const auto compute_gradients = [&] {
    double mean_loss = 0;
    job.loss_parts.clear();
    reset_gradients(job.parameters);
    for (const Batch& batch : kept) {
      const Occasion occasion = occasion_of(progress, &batch - kept.data());
      const bool synchronize = &batch == &kept.back();  // before it, gradients add up on each rank
      if (job.parallel) job.parallel->prepare_forward(synchronize);
      const LossValue losses = named("the forward pass", occasion, [&] {  //
        return job.model->loss(batch, job.model->forward(batch));
      });
      at::Tensor loss = losses.total;
      const double weight = static_cast<double>(batch.size()) / static_cast<double>(window_samples);
      const auto value = loss.item<double>();
      if (!std::isfinite(value)) {
        throw TrainingError("the loss is " + decimal(value) + " at step " + std::to_string(occasion.step) + ", epoch " +
                            std::to_string(occasion.epoch) + ", batch " + std::to_string(occasion.batch) +
                            "; try a lower learning rate, max_grad_norm, or look for bad values in the data" +
                            newest_checkpoint(job));
      }
      mean_loss += weight * value;
      add_weighted(job.loss_parts, losses.parts, weight);
      const double factor = weight * static_cast<double>(job.world_size());  // DataParallel takes the mean over ranks
      if (factor != 1) loss = loss * factor;
      if (job.grad_scaler) loss = job.grad_scaler->scale(loss);
      if (job.parallel) {
        job.parallel->prepare_backward(synchronize, loss);
        job.group->guarded("a backward pass", [&] { run_backward_of_rank(occasion, loss); });
        job.parallel->finish_backward(synchronize);
      } else {
        named("the backward pass", occasion, [&] { run_backward(job, batch, loss); });
      }
      if (!synchronize && !changes && stop.comes_after_batch()) {
        stopped = true;
        return 0.0;
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
  if (stopped) return std::nullopt;
  changes = true;
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
    named("the optimizer", occasion_of(progress, window - 1), [&] { step_optimizer(job, closure); });
  } else {
    ++progress.skipped_steps;
  }
  if (job.grad_scaler) job.grad_scaler->update();
  progress.batch += window;
  ++progress.step;
  return loss;
}

}  // namespace trainrun
