#pragma once

#include <optional>
#include <vector>

#include "registry/kinds/loss.h"

namespace trainrun {

/// How a loss that is the mean over those targets which count, and not over all samples, counts the targets of a batch.
struct CountedTargets {
  int64_t ignore_index = -100;
  std::optional<std::vector<double>> weight = std::nullopt;  // of each class
  size_t input = 1;                                          // which input of the loss the targets are
  /// Whether a step of several batches is the mean over the targets of all of them (`mean_over: targets`), and not the
  /// mean of their means by their samples. Data that are evaluated are always as one batch.
  bool in_steps = true;

  /// What the batch's mean is divided by: how many class indices of `target` count, or the sum of their weights. A
  /// float64 scalar where `target` is.
  at::Tensor count(const at::Tensor& target) const;
};

/// Empty where `loss`, of inputs like these, is the mean over its samples, or a sum.
std::optional<CountedTargets> counted_targets(const Component<LossKind>& loss, const LayerInputs& inputs);
/// DistillationLoss with labels.
std::optional<CountedTargets> counted_in_distillation(const Component<LossKind>& loss, const LayerInputs& inputs);

}  // namespace trainrun
