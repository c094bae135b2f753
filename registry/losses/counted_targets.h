#pragma once

#include <optional>
#include <vector>

#include "registry/loss.h"

namespace trainrun {

/// How a loss that is the mean over the targets of a whole step (`mean_over: targets`) counts those of a batch.
struct CountedTargets {
  int64_t ignore_index = -100;
  std::optional<std::vector<double>> weight;  // of each class

  /// What the batch's mean is divided by: how many class indices of `target` count, or the sum of their weights. Waits
  /// for a GPU.
  double count(const at::Tensor& target) const;
};

/// Empty where `loss` is the mean of its batches' means, by their samples, or a sum.
std::optional<CountedTargets> counted_targets(const Component<LossKind>& loss);

}  // namespace trainrun
