#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "registry/kernels/attention_terms.h"
#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// Some of the positions of texts [N, T].
struct RaggedTexts {
  at::Tensor rows;  // [K] int64: their numbers, n * T + t, from the smallest to the largest
  at::Tensor mask;  // [N, T] of integers: not 0 where a key is looked at; those must be among them
};

/// Whether `ragged_attention` computes it: what `supports_short_attention` says, but for the number of queries and keys,
/// of which there may be few; at least one position of each text; no other mask, no causality.
bool supports_ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t heads,
                               const RaggedTexts& texts, const AttentionTerms& terms);

/// Attention within each text, of which some positions are side by side: queries [1, K, heads * D], keys and values
/// [1, K, key heads * D]. What it gives for them is what `short_attention` gives for texts of T positions, of which a
/// dropout draws for all; where a text's mask is 0 everywhere, all of its positions must be there. Gradients likewise.
at::Tensor ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t heads,
                            const RaggedTexts& texts, const AttentionTerms& terms, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
