#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "registry/kinds/layer.h"

namespace trainrun {

/// What a step is about to change, as it is before. The step is made in any case, and then, where gradients overflowed,
/// everything is put back without the host knowing it. `overflow`: see StepContext; where it is undefined, nothing is
/// kept.
class BeforeStep {
 public:
  explicit BeforeStep(at::Tensor overflow) : overflow_(std::move(overflow)) {}

  /// Copies those of `tensors` that are on the device of `overflow`; others are numbers of the host.
  void keep(const Tensors& tensors);
  /// Where `overflow` is 1, the tensors become what they were.
  void restore() const;
  /// Each number of the host that was given to `keep`, and what it was.
  const std::vector<std::pair<at::Tensor, at::Tensor>>& numbers() const { return numbers_; }

 private:
  at::Tensor overflow_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // and what they were
  std::vector<std::pair<at::Tensor, at::Tensor>> numbers_;
};

}  // namespace trainrun
