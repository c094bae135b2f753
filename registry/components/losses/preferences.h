#pragma once

#include "registry/kinds/layer.h"

namespace trainrun {

// What learns from pairs of answers: [output, chosen_labels, rejected_labels] and perhaps a reference's output, with
// logits [2 N, T, C], the chosen answers' first, and labels [N, T], shifted already and below 0 where nothing counts.

/// Throws LayerError where the first three inputs, or four where `has_reference`, do not fit.
void check_preferences(const LayerInputs& in, bool has_reference = true);

struct Gains {
  at::Tensor chosen;    // [N]
  at::Tensor rejected;  // [N]
};
/// By how much the log-probability of each answer is above the reference's or, where there is none (three inputs), above
/// 0; `mean`: of its tokens', not their sum.
Gains gains_of(const Tensors& inputs, bool mean);

/// [N]: the log-probability of each row's labels [N, T] by logits [N, T, C], or the mean of its tokens'.
at::Tensor log_probabilities(const at::Tensor& logits, const at::Tensor& labels, bool mean);

/// Of answers that are desirable or not: [output, labels, kl_labels, label, reference], with logits [2 N, T, C], the
/// answers' first, then those of prompts with another's answer; `label` [N] is 1 where an answer is desirable.
void check_desirable(const LayerInputs& in);
/// By how much the log-probability of each answer, and of each mismatched one, is above the reference's.
struct DesirableGains {
  at::Tensor own;         // [N]
  at::Tensor mismatched;  // [N]
};
DesirableGains desirable_gains(const Tensors& inputs);

/// Of scores [2 N, 1] or [2 N], those of the chosen answers and those of the rejected ones, [N] each. Throws LayerError
/// where the output of `in` is no such.
void check_scores(const LayerInputs& in);
Gains halves_of(const at::Tensor& scores);

}  // namespace trainrun
