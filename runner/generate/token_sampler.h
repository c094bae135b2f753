#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runner/generate/generation_settings.h"

namespace trainrun {

/// The scores [V] of the token that follows `text`, from its logits [V], float32 on the CPU: what transformers' logits
/// processors make of them, in its order. A token that cannot come has -infinity. `prompt_length`: how many of the text's
/// tokens are its prompt.
at::Tensor processed_scores(const at::Tensor& logits, const std::vector<int64_t>& text, int64_t prompt_length,
                            const GenerationSettings& options);
/// How many tokens follow a prompt of so many.
int64_t most_new_tokens(const GenerationSettings& options, int64_t prompt_length);
/// Throws Error where the options name a token for which a model of `vocab_size` has no logit, or temperature is 0 and
/// tokens are drawn.
void check_options(const GenerationSettings& options, int64_t vocab_size);

/// The token that comes next: that of the highest score, or the one at which the probabilities of those before it add
/// up to `uniform`, of [0, 1).
int64_t chosen_token(const at::Tensor& scores, bool do_sample, double uniform);

}  // namespace trainrun
