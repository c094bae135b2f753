#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace trainrun {

/// What scaled dot-product attention is given besides queries, keys and values.
struct AttentionTerms {
  at::Tensor mask = {};  // added to the scores, or true where a key is looked at; undefined: none
  double dropout = 0;    // probability
  bool is_causal = false;
  std::optional<double> scale = std::nullopt;  // null: 1 / sqrt(D)
};

/// at::scaled_dot_product_attention of queries [N, heads, L, D], keys and values [N, heads, S, D]; as fast as it can be
/// had: where gradients in bfloat16 are wanted on a CPU and there are few keys, it is computed in float32, since ATen's
/// backward pass in bfloat16 takes up to five times as long there.
at::Tensor scaled_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionTerms& options);

/// Each head of keys or values [N, heads, S, D] `times` times: for as many queries as share it.
at::Tensor repeated_heads(const at::Tensor& heads, int64_t times);

}  // namespace trainrun
