#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "registry/generation_options.h"

namespace trainrun {

/// The scores [V] of the token that follows `text`, from its logits [V], float32 on the CPU: what transformers' logits
/// processors make of them, in its order. A token that cannot come has -infinity.
at::Tensor processed_scores(const at::Tensor& logits, const std::vector<int64_t>& text,
                            const GenerationOptions& options);

/// The token that comes next: that of the highest score, or the one at which the probabilities of those before it add
/// up to `uniform`, of [0, 1).
int64_t chosen_token(const at::Tensor& scores, bool do_sample, double uniform);

}  // namespace trainrun
