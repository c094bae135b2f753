// One optimizer step.
#include "runner/train/train_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <spdlog/spdlog.h>

#include <cmath>

#include "registry/models/language_model.h"
#include "registry/tensors/component_error.h"
#include "runner/base/text.h"
#include "runner/control/control.h"
#include "runner/model/gradients.h"
#include "runner/train/asked_signals.h"
#include "runner/train/batch_pictures.h"
#include "runner/train/device_step.h"
#include "runner/train/finite.h"
#include "runner/train/loss_origin.h"
#include "runner/train/step_batches.h"
#include "runner/train/step_errors.h"
#include "runner/train/tensor_histograms.h"
#include "runner/train/training_error.h"

namespace trainrun {
namespace {

/// Why a loss of the batch is the mean of nothing: all its targets are those that it ignores; or "".
std::string without_targets(const Job& job, const Batch& batch) {
  for (const Component<LossKind>& loss : job.recipe.loss) {
    const Names& inputs = loss.common.inputs;
    const std::string name = inputs.empty() ? job.train_data->info().target : inputs.size() > 1 ? inputs[1] : "";
    const Batch::Field* field = nullptr;
    for (const Batch::Field& one : batch.fields()) {
      if (one.name == name) field = &one;
    }
    const bool ignores =
        loss.attributes.contains("ignore_index") && loss.attributes["ignore_index"].is_number_integer();
    if (!field || !ignores || !at::isIntegralType(field->tensor.scalar_type(), false)) continue;
    const auto ignored = loss.attributes["ignore_index"].get<int64_t>();
    if (field->tensor.ne(ignored).any().item<bool>()) continue;
    return ": " + loss.type + " has no target in this batch, '" + name + "' is " + std::to_string(ignored) +
           " (ignore_index) everywhere; look at what the labels are with `trainrun data`, and leave such samples out";
  }
  return "";
}

/// `batch`: null where it is no longer there.
[[noreturn]] void throw_not_finite(Job& job, double loss, const Occasion& occasion, const Batch* batch) {
  std::string reason = batch && std::isnan(loss) ? without_targets(job, *batch) : "";
  const LossOrigin origin = batch && reason.empty() ? origin_of_loss(job, *batch) : LossOrigin();
  const bool is_explained = !reason.empty() || (!origin.text.empty() && !origin.is_from_before);
  if (reason.empty()) {
    reason = (origin.text.empty() ? "" : ": " + origin.text) +
             "; try a lower learning rate, max_grad_norm, or look for bad values in the data";
  }
  throw NonFiniteNumbers("the loss is " + decimal(loss) + " at step " + std::to_string(occasion.step) + ", epoch " +
                             std::to_string(occasion.epoch) + ", batch " + std::to_string(occasion.batch) + reason +
                             newest_checkpoint(job),
                         occasion.step, is_explained);
}

/// A CPU says at once that a loss is not finite; a GPU keeps it for `read_account`.
void check_loss(Job& job, const LossValue& losses, const Batch& batch, const Occasion& occasion) {
  const at::Tensor value = losses.value();
  job.account->watch(value, occasion);
  if (!job.device.is_cpu()) return;
  if (const auto loss = value.item<double>(); !std::isfinite(loss)) throw_not_finite(job, loss, occasion, &batch);
}

/// Its positions, padding included.
int64_t count_tokens(const Batch& batch) {
  int64_t tokens = 0;
  for (const Batch::Field& field : batch.fields()) {
    if (holds_tokens(field.name)) tokens += field.tensor.numel();
  }
  return tokens;
}

/// Brings the ranks' losses and signals together by one sum of numbers that lie on the host: the parts, the loss, the
/// tokens, how many ranks got each signal; and what rank 0's clock says. A GPU's losses stay there until somebody reads
/// them, and zeros are sent in their place.
void share_with_ranks(Job& job, StepOutcome& outcome, int own_signal) {
  StepResult& result = outcome.figures;
  StepDecision& decision = outcome.decision;
  const int64_t num_parts = result.parts.defined() ? result.parts.numel() : 0;
  const at::Tensor numbers = at::zeros({step_numbers(job.recipe, num_parts)}, at::kDouble);
  if (job.device.is_cpu()) {
    if (num_parts > 0) numbers.narrow(0, 0, num_parts).copy_(result.parts);
    numbers.select(0, num_parts).copy_(result.loss);
  }
  const at::Tensor tokens = numbers.select(0, num_parts + 1).fill_(result.tokens);
  const at::Tensor signals = numbers.narrow(0, num_parts + 2, kSignalNumbers);
  count_signal(own_signal, signals);
  const bool heeds_clock = job.recipe.heeds_clock();
  const at::Tensor times = numbers.narrow(0, num_parts + 2 + kSignalNumbers, heeds_clock ? kClockNumbers : 0);
  if (heeds_clock && job.is_main()) {
    times.select(0, 0).fill_(decision.is_last ? 1.0 : 0.0);
    times.select(0, 1).fill_(decision.is_save_due ? 1.0 : 0.0);
  }
  const at::Tensor asked = numbers.narrow(0, numbers.numel() - kChangeNumbers, kChangeNumbers);
  if (decision.is_asked) asked.fill_(1);
  job.group->sum({numbers}, "the end of the step");
  decision.is_asked = *asked.const_data_ptr<double>() > 0;
  decision.signal = greatest_signal(signals);
  result.tokens = static_cast<int64_t>(*tokens.const_data_ptr<double>());
  if (heeds_clock) {
    decision.is_last = times.const_data_ptr<double>()[0] > 0;
    decision.is_save_due = times.const_data_ptr<double>()[1] > 0;
  }
  if (!job.device.is_cpu()) return;
  result.loss = numbers.select(0, num_parts);
  if (num_parts > 0) result.parts = numbers.narrow(0, 0, num_parts);
}

/// Whether the parameters that `model.freeze` names are still to keep their values.
bool is_frozen(const Job& job) {
  return !job.frozen.empty() && job.progress.epoch < *job.recipe.model.unfreeze_at_epoch;
}

/// What the host decides once a step's gradients are there: it asks the clock and the other ranks, and counts tokens.
void decide(Job& job, StepOutcome& outcome, bool heeds_signals) {
  if (job.ask_clock) job.ask_clock(outcome.decision);
  outcome.decision.is_asked = heeds_signals && job.control && job.control->has_commands();
  if (!job.group->is_alone()) share_with_ranks(job, outcome, heeds_signals ? own_signal() : 0);
  const auto& max_tokens = job.recipe.training.max_tokens;
  const bool has_all_tokens = max_tokens && job.progress.tokens + outcome.figures.tokens >= *max_tokens;
  outcome.decision.is_last = outcome.decision.is_last || has_all_tokens;
}

/// For the loggers that want them: pictures of an epoch's first batch.
void show_pictures(Job& job, const Batch& batch) {
  if (job.progress.batch > 0 || !job.loggers || job.loggers->num_pictures() == 0) return;
  PicturesRecord record = {job.progress.step, batch_pictures(batch, job.loggers->num_pictures())};
  if (record.pictures.empty()) {
    if (job.progress.epoch > 0) return;  // it was said
    spdlog::warn("tensorboard: images: the batches hold no pictures [N, 1 or 3, height, width]; none is written");
    return;
  }
  job.loggers->on_pictures(record);
}

/// The gradients of the window's mean loss, summed over ranks, which have yet to be multiplied by `device`'s factors.
/// Several ranks make one collective besides those of gradients and layers: it carries the loss, the tokens and the
/// signals that came. False where a signal to stop ended the window. A further pass, which an optimizer asks for, heeds
/// no signals, and its loss need not be finite: a line search that went too far comes back, as in PyTorch.
bool compute_gradients(Job& job, Window& window, DeviceStep& device, StepOutcome& outcome, bool is_first_pass) {
  outcome.figures.samples = window.samples();
  reset_gradients(job.parameters);
  if (job.group->is_alone()) {  // other ranks wait for all gradients, whoever needs them
    for (const at::Tensor& parameter : job.frozen) parameter.set_requires_grad(!is_frozen(job));
  }
  window.begin();
  StepBatches batches(job, window);
  if (!batches.begin()) return false;
  for (int64_t i = 0; i < window.size(); ++i) {
    const std::optional<Batch> batch = batches.next(i);
    if (!batch) return false;
    outcome.figures.tokens += count_tokens(*batch);
    if (i == 0 && is_first_pass) show_pictures(job, *batch);
    const bool synchronize = i == window.size() - 1;
    const Occasion occasion = window.occasion(i);
    const LossValue losses = device.forward(*batch, synchronize, occasion);
    if (is_first_pass) check_loss(job, losses, *batch, occasion);
    device.backward(losses, *batch, batches.shares(i), synchronize, occasion);
    if (window.is_stopped_after(i)) return false;
  }
  if (is_frozen(job)) reset_gradients(job.frozen);
  device.finish();
  decide(job, outcome, /*heeds_signals=*/is_first_pass);
  return true;
}

/// What an optimizer may ask for while it steps. Where the weights are still the same it gets the loss that is `known`.
LossClosure closure_of(Job& job, Window& window, const StepResult& known) {
  const auto over_ranks = [&job](const at::Tensor& loss) {
    if (job.group->is_alone() || job.device.is_cpu()) return loss;
    const at::Tensor sum = loss.clone();
    job.group->sum({sum}, "the loss");
    return sum;
  };
  return [&job, &window, over_ranks, loss = known.loss, is_known = true]() mutable {
    if (std::exchange(is_known, false)) return over_ranks(loss);
    if (job.grad_scaler) {
      throw TrainingError(job.recipe.optimizer.type +
                          " evaluates a batch more than once, which does not work with a scaled loss; write "
                          "mixed_precision: bf16 or 'no'");
    }
    StepOutcome again;
    DeviceStep device(job, again.figures);
    compute_gradients(job, window, device, again, /*is_first_pass=*/false);
    device.apply_factors();
    return over_ranks(again.figures.loss);
  };
}

/// What the closure throws says itself where.
void step_optimizer(Job& job, const StepContext& context) {
  try {
    job.optimizer->step(context);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_component_error(name_of(job.recipe.optimizer), {}, error);
  }
}

/// The optimizer's step from the gradients, unless they overflowed, and the scaler's. Where the host knows by now
/// whether they did, that is returned.
std::optional<bool> apply_gradients(Job& job, const StepResult& result, const Tensors& factors, Window& window) {
  job.account->count_skipped();
  job.set_rates();
  const bool skips_there = result.overflow.defined() && !job.device.is_cpu() && job.optimizer->skips_overflow();
  const bool is_skipped = !skips_there && is_overflow(result.overflow);
  if (!is_skipped) {
    const StepContext context = {job.rates, closure_of(job, window, result), factors,
                                 skips_there ? result.overflow : at::Tensor()};
    named("the optimizer", window.occasion(window.size() - 1), [&] { step_optimizer(job, context); });
  }
  if (job.grad_scaler) job.grad_scaler->update(result.overflow);
  if (skips_there) return std::nullopt;
  return is_skipped;
}

}  // namespace

int64_t step_numbers(const Recipe& recipe, int64_t num_parts) {
  return num_parts + 2 + kSignalNumbers + (recipe.heeds_clock() ? kClockNumbers : 0) + kChangeNumbers;
}

std::optional<StepOutcome> train_step(Job& job, BatchStream& batches) {
  Window window(job, batches);
  StepOutcome outcome;
  DeviceStep device(job, outcome.figures);
  if (!compute_gradients(job, window, device, outcome, /*is_first_pass=*/true)) return std::nullopt;
  if (job.counts_gradients(job.progress.step + 1))
    job.gradient_histograms = gradient_histograms(job.parallel->parameters());
  const bool is_logged = job.is_line_due(job.progress.step + 1) || outcome.decision.is_last;
  if (!job.optimizer->takes_factors() || job.callbacks->read_gradients(is_logged)) device.apply_factors();
  job.callbacks->before_update(is_logged);
  const std::optional<bool> overflowed = apply_gradients(job, outcome.figures, device.factors(), window);
  job.progress.batch += window.size();
  ++job.progress.step;
  job.progress.tokens += outcome.figures.tokens;
  job.group->set_step(job.progress.step);
  job.account->add(outcome.figures, overflowed);
  return outcome;
}

void read_account(Job& job) {
  if (const auto found = job.account->read()) throw_not_finite(job, found->loss, found->occasion, nullptr);
}

}  // namespace trainrun
