#include "runner/train/utilization.h"

#include "registry/graph/shape_functions.h"
#include "registry/models/language_model.h"
#include "runner/device/device.h"
#include "runner/device/peak_flops.h"
#include "runner/model/flops.h"

namespace trainrun {
namespace {

std::optional<double> peak_of_device(const Job& job) {
  const Recipe& recipe = job.recipe;
  if (recipe.logging.peak_flops || job.device.is_cpu()) return recipe.logging.peak_flops;
  const Accelerator* gpus = open_accelerator().accelerator;
  if (!gpus) return std::nullopt;  // a device that tests imagine
  return peak_flops(gpus->describe(job.device.index()).name, recipe.mixed_precision, recipe.tf32);
}

}  // namespace

Utilization::Utilization(const Job& job) {
  const std::optional<double> peak = peak_of_device(job);
  if (!peak || !job.is_main()) return;
  peak_ = *peak * static_cast<double>(job.world_size());
  const DatasetInfo info = training_info(job.recipe);
  constexpr double kPassesOfStep = 3;  // the backward pass takes twice what the forward pass takes
  flops_of_sample_ = kPassesOfStep * static_cast<double>(forward_flops(*plan_model(job.recipe), info));
  for (const FieldInfo& field : info.fields) {
    if (!holds_tokens(field.name)) continue;
    tokens_of_sample_ += static_cast<double>(num_elements(field.shape));
  }
}

std::optional<double> Utilization::of(int64_t samples, int64_t tokens, double seconds) const {
  if (peak_ == 0 || flops_of_sample_ == 0) return std::nullopt;
  const double counted = tokens_of_sample_ > 0
                             ? static_cast<double>(tokens) / tokens_of_sample_  // texts differ in length
                             : static_cast<double>(samples);
  return flops_of_sample_ * counted / (seconds * peak_);
}

}  // namespace trainrun
