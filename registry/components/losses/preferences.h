#pragma once

#include "registry/kinds/layer.h"

namespace trainrun {

// What compares a model's pairs of answers with a reference's: [output, chosen_labels, rejected_labels, reference], with
// logits [2 N, T, C], the chosen answers' first, and labels [N, T], shifted already and below 0 where nothing counts.

/// Throws LayerError where the inputs do not fit.
void check_preferences(const LayerInputs& in);

struct Gains {
  at::Tensor chosen;    // [N]
  at::Tensor rejected;  // [N]
};
/// By how much the log-probability of each answer is above the reference's; `mean`: of its tokens', not their sum.
Gains gains_of(const Tensors& inputs, bool mean);

}  // namespace trainrun
