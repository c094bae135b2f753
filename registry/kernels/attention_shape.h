#pragma once

#include <cstddef>
#include <cstdint>

// What the loops of short_attention_simd.h and bfloat16_attention.h are told: sizes, and where tensors lie.

namespace trainrun::kernels {

constexpr int64_t kMostAttentionKeys = 512;
constexpr int64_t kMostAttentionFeatures = 128;

/// Sizes of an attention. As many heads of queries share a head of keys and values as heads / key_heads.
struct AttentionShape {
  int64_t batch, heads, key_heads, queries, keys, features;
  bool is_bfloat16;  // queries, keys, values, the output and all their gradients; otherwise they are float32
  bool is_causal;    // query i sees the keys up to i
  float scale;       // of the scores
  float kept_scale;  // of the weights that a dropout keeps
};

/// A tensor [N, heads, T, D] of float32 or bfloat16 whose features lie side by side.
struct AttentionRows {
  void* at;
  int64_t batch_step, head_step, row_step;
};
/// A tensor [N, heads, L, S] of float32 whose keys lie side by side; `at` may be null: nothing is added.
struct AttentionMask {
  const float* at;
  int64_t batch_step, head_step, row_step;
};

/// All that a pass reads and writes. The backward pass does not read y, nor the forward one the gradients.
struct AttentionTensors {
  AttentionRows query, key, value, y;
  AttentionMask mask;
  const uint8_t* kept;  // [N, heads, L, S]: 0 where a dropout has taken a weight; null where there is none
  /// [N, heads, L, 2]: a query's largest score and, with it subtracted, the logarithm of the sum of exponentials. (One
  /// number for both would lose the latter where a mask adds a large number to all scores.) Forward may be null: not wanted.
  float* normalization;
  AttentionRows grad_y, grad_query, grad_key, grad_value;
};

}  // namespace trainrun::kernels
