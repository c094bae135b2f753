#pragma once

#include <optional>

#include "registry/graph/onnx_form.h"

// Attention as ONNX operators.

namespace trainrun {

struct OnnxAttention {
  OnnxValue query;      // [N, heads, L, D]
  OnnxValue key;        // [N, key heads, S, D]
  OnnxValue value;      // [N, key heads, S, D]
  int64_t repeats = 1;  // so many heads of queries share one of keys
  double scale = 1;
  OnnxValue mask;  // added to the scores [N, heads, L, S], broadcast; no value: nothing is
};

/// [N, T, heads * D] to [N, heads, T, D].
OnnxValue onnx_heads(OnnxForm& form, const OnnxValue& x, int64_t num_heads);
/// The way back.
OnnxValue onnx_joined_heads(OnnxForm& form, const OnnxValue& x);
/// What the queries gather, [N, heads, L, D].
OnnxValue onnx_attended(OnnxForm& form, const OnnxAttention& attention);
/// Where a mask of booleans marks no padding, or one of integers is not 0: bool, of the same shape.
OnnxValue onnx_seen(OnnxForm& form, const OnnxValue& mask, at::ScalarType dtype);
/// [L, S] bool: whether the query at position i may see the key at position k: k <= i, and k > i - window. `time`: the
/// dimension of positions in queries and keys.
OnnxValue onnx_causal(OnnxForm& form, const OnnxValue& queries, const OnnxValue& keys, int64_t time,
                      const std::optional<int64_t>& window);

}  // namespace trainrun
