#include "runner/train/step_errors.h"

#include <c10/util/Exception.h>

#include "registry/tensors/component_error.h"
#include "runner/train/training_error.h"

namespace trainrun {
namespace {

/// Throws on the DistributedError in whose place `error` stands: a layer that waits for other ranks is not at fault.
void pass_on_lost_ranks(const std::exception& error) {
  try {
    std::rethrow_if_nested(error);
  } catch (const DistributedError&) {
    throw;
  } catch (const std::exception&) {
    return;  // the layer's own
  }
}

std::optional<ComponentName> layer_of_failed_backward(Job& job, const Batch& batch) {
  const BackwardTrace trace;
  try {
    job.model->loss(batch, job.model->forward(batch)).total().backward();
  } catch (const std::exception&) {
    return trace.last();
  }
  return std::nullopt;  // it does not fail again
}

void run_backward_alone(Job& job, const Batch& batch, const at::Tensor& loss) {
  try {
    loss.backward();
  } catch (const std::exception& error) {
    const auto layer = layer_of_failed_backward(job, batch);
    if (!layer) throw;
    throw_component_error({layer->place, layer->path, "the backward pass of " + layer->type}, {}, error);
  }
}

}  // namespace

std::string Occasion::text() const {
  if (phase == Phase::kTraining) {
    return "training step " + std::to_string(step) + " (epoch " + std::to_string(epoch) + ", batch " +
           std::to_string(batch) + ")";
  }
  return (step > 0 ? "the evaluation after step " + std::to_string(step) : std::string("the evaluation")) + " (batch " +
         std::to_string(batch) + ")";
}

void throw_named(const std::string& what, const Occasion& occasion, const std::exception& error) {
  if (const auto* of_component = dynamic_cast<const ComponentError*>(&error)) {
    pass_on_lost_ranks(error);
    std::throw_with_nested(TrainingError(of_component->text(" in " + occasion.text())));
  }
  if (dynamic_cast<const Error*>(&error)) throw;
  std::throw_with_nested(TrainingError(what + " failed in " + occasion.text() + ": " + error_text(error)));
}

void run_backward_of_rank(const at::Tensor& loss, const Occasion& occasion) {
  try {
    loss.backward();
  } catch (const c10::DistError&) {
    throw;
  } catch (const c10::Error& error) {
    throw_named("the backward pass", occasion, error);
  }
}

void run_backward(Job& job, const Batch& batch, const at::Tensor& loss, const Occasion& occasion) {
  if (job.group->is_alone()) {
    named("the backward pass", occasion, [&] { run_backward_alone(job, batch, loss); });
  } else {
    job.group->guarded("a backward pass", [&] { run_backward_of_rank(loss, occasion); });
  }
}

}  // namespace trainrun
