// One optimizer step.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "registry/component_error.h"
#include "runner/base/signals.h"
#include "runner/base/text.h"
#include "runner/data/window_batches.h"
#include "runner/model/gradients.h"
#include "runner/train/finite.h"
#include "runner/train/loss_figures.h"
#include "runner/train/step_errors.h"
#include "runner/train/train_loop.h"

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

  /// After a batch was read. Ranks agree later.
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

int64_t batches_of_window(const Job& job) {
  return std::min(job.recipe.training.gradient_accumulation_steps,
                  job.train_loader->num_batches() - job.progress.batch);
}

/// One optimizer step, over the batches of a window of accumulation.
class Step {
 public:
  Step(Job& job, BatchStream& stream)
      : job_(job),
        progress_(job.progress),
        window_(batches_of_window(job)),
        batches_(*job.train_loader, stream, progress_.epoch, progress_.batch, window_),
        stop_(job, window_) {
    for (int64_t i = 0; i < window_; ++i) samples_ += job.train_loader->global_batch_size(progress_.batch + i);
  }

  /// The mean loss; nothing where a signal came before the weights changed.
  std::optional<double> run() {
    job_.set_rates();
    const std::optional<double> loss = compute_gradients();
    if (!loss) return std::nullopt;
    changes_ = true;
    if (finite_) {
      named("the optimizer", occasion(window_ - 1), [&] { step_optimizer(job_, closure(*loss)); });
    } else {
      ++progress_.skipped_steps;
    }
    if (job_.grad_scaler) job_.grad_scaler->update();
    progress_.batch += window_;
    ++progress_.step;
    return loss;
  }

 private:
  Occasion occasion(int64_t batch_of_window) const {
    return {Occasion::Phase::kTraining, progress_.step + 1, progress_.epoch, progress_.batch + batch_of_window};
  }

  /// Who asks for the loss where the weights are still the same gets the one that is `known`.
  LossClosure closure(double known) {
    return [this, known, is_known = true]() mutable {
      if (std::exchange(is_known, false)) return at::scalar_tensor(known, at::kDouble);
      if (job_.grad_scaler) {
        throw TrainingError(job_.recipe.optimizer.type +
                            " looks at a batch more than once, which a scaled loss is not made for; write "
                            "mixed_precision: bf16 or 'no'");
      }
      return at::scalar_tensor(*compute_gradients(), at::kDouble);
    };
  }

  /// A pass over the window: leaves the gradients of its mean loss, over all ranks and clipped, in the parameters.
  std::optional<double> compute_gradients() {
    double loss = 0;
    job_.loss_parts.clear();
    reset_gradients(job_.parameters);
    batches_.begin();
    for (int64_t i = 0; i < window_; ++i) {
      const Batch batch = named("making a batch", occasion(i), [&] { return batches_.next(); });
      if (!changes_ && stop_.comes_while_reading()) return std::nullopt;
      const bool synchronize = i == window_ - 1;  // before it, gradients add up on each rank
      loss += add_gradients(batch, synchronize, occasion(i));
      if (!synchronize && !changes_ && stop_.comes_after_batch()) return std::nullopt;
    }
    if (job_.group) loss = sum_over_ranks(*job_.group, loss, job_.loss_parts);
    if (job_.grad_scaler) finite_ = job_.grad_scaler->unscale(job_.parameters, job_.shards());
    job_.grad_norm.reset();
    if (job_.recipe.training.max_grad_norm && finite_) {
      job_.grad_norm = clip_gradients(job_.parameters, *job_.recipe.training.max_grad_norm, job_.shards());
    }
    return loss;
  }

  /// The forward and backward pass of a batch; returns its share of the window's loss.
  double add_gradients(const Batch& batch, bool synchronize, const Occasion& occasion) {
    if (job_.parallel) job_.parallel->prepare_forward(synchronize);
    const LossValue losses =
        named("the forward pass", occasion, [&] { return job_.model->loss(batch, job_.model->forward(batch)); });
    if (const double value = losses.value(); !std::isfinite(value)) throw_not_finite(value, occasion);
    const double weight = static_cast<double>(batch.size()) / static_cast<double>(samples_);
    const double share = losses.value(weight);
    add_parts(job_.loss_parts, losses, weight);
    const auto ranks = static_cast<double>(job_.world_size());  // DataParallel takes the mean over ranks
    at::Tensor loss = losses.total(weight * ranks, ranks);
    if (job_.grad_scaler) loss = job_.grad_scaler->scale(loss);
    if (job_.parallel) {
      job_.parallel->prepare_backward(synchronize, loss);
      job_.group->guarded("a backward pass", [&] { run_backward_of_rank(occasion, loss); });
      job_.parallel->finish_backward(synchronize);
    } else {
      named("the backward pass", occasion, [&] { run_backward(job_, batch, loss); });
    }
    return share;
  }

  [[noreturn]] void throw_not_finite(double loss, const Occasion& occasion) const {
    throw TrainingError("the loss is " + decimal(loss) + " at step " + std::to_string(occasion.step) + ", epoch " +
                        std::to_string(occasion.epoch) + ", batch " + std::to_string(occasion.batch) +
                        "; try a lower learning rate, max_grad_norm, or look for bad values in the data" +
                        newest_checkpoint(job_));
  }

  Job& job_;
  Progress& progress_;
  int64_t window_;       // batches
  int64_t samples_ = 0;  // of the window, of all ranks
  WindowBatches batches_;
  WindowStop stop_;
  bool finite_ = true;    // the gradients; where the loss is scaled
  bool changes_ = false;  // the weights: the optimizer is at work
};

}  // namespace

std::optional<double> train_step(Job& job, BatchStream& batches) { return Step(job, batches).run(); }

}  // namespace trainrun
