#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "registry/kernels/attention_terms.h"
#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// Whether `short_attention` computes it: plain CPU tensors of float32 or bfloat16, or what autocast makes bfloat16; 16
/// to 512 keys and at least 8 queries, or a single key; up to 128 features a head; a mask that takes no gradient; AVX2
/// or AVX-512. A rule of sizes alone, so that a job computes the same on every start.
bool supports_short_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const AttentionTerms& terms);

/// Attention of queries [N, heads, L, D] over keys and values [N, key heads, S, D], with softmaxes and sums of float32,
/// whatever the tensors hold (bfloat16_attention.h says what is rounded on the way); gradients of the first order, those
/// of higher ones by ATen's operations. The weights are never whole in memory. A dropout draws the numbers that ATen's attention would. Equal to at::scaled_dot_product_attention but for
/// the order of sums (1e-6 of the result in float32). The output lies in memory in the order of the queries. A query
/// that sees no key gives zeros. `path` forces the instructions, for tests: AVX2 or AVX-512, which must be available.
at::Tensor short_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const AttentionTerms& terms, CpuPath path = best_cpu_path());

/// The same of queries, keys and values that one product gave side by side, [N, T, 3 * heads * D], or [T, N, …] if `time`
/// is 0; the output is [N, T, heads * D] or [T, N, …]. Their gradients are written side by side, too, so that nothing puts
/// them together. Nothing where `short_attention` does not compute it, or `packed` has gaps.
std::optional<at::Tensor> packed_attention(const at::Tensor& packed, int64_t heads, int64_t time,
                                           const AttentionTerms& terms, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
