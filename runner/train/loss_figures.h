#pragma once

#include <ATen/TensorOperators.h>

#include <optional>
#include <vector>

#include "runner/distributed/process_group.h"
#include "runner/model/model.h"

namespace trainrun {

/// Adds a number, a scalar, to a sum that is undefined before the first.
inline void add_to(at::Tensor& sum, const at::Tensor& number) { sum = sum.defined() ? sum + number : number; }

/// The loss of an evaluation, and each of several: of all samples as of one batch, however they were cut into batches.
/// Added up on the device where batches are computed, and read once.
class EvaluatedLosses {
 public:
  explicit EvaluatedLosses(const Model& model);

  /// What a batch of `size` samples gave (LossUse::kEvaluation). A batch of which no target counts adds nothing to a
  /// mean over targets.
  void add(const LossValue& losses, int64_t size);
  /// Reads what was added, together with what the other ranks have; `group` is null for one process. Collective. First
  /// what is minimized, then each of several losses.
  std::vector<double> figures(ProcessGroup& group) const;

 private:
  Tensors means_;        // of losses that average over samples, times the samples; undefined: 0
  Tensors sums_;         // of those with `reduction: sum`
  Tensors counted_;      // of those that average over targets, times the targets, with their factors
  Tensors counted_own_;  // the same without
  Tensors targets_;      // how many these are
  std::vector<std::optional<size_t>> places_;  // for each loss of the recipe: its place in counted_
  double samples_ = 0;
};

}  // namespace trainrun
