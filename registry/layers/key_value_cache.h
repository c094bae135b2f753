#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "registry/graph/decoding.h"

namespace trainrun {

/// Causal attention of the tokens that come next to themselves and to all before them.
struct NextTokens {
  at::Tensor query;  // [N, heads, T, D]
  at::Tensor key;    // [N, heads of keys, T, D]; each of these heads serves as many heads of queries
  at::Tensor value;
  at::Tensor seen;  // [N, T] bool: false for keys that nobody looks at; undefined: all are looked at
  std::optional<int64_t> sliding_window;  // a query looks at so many keys at most, its own the last
  std::optional<double> scale;
};

/// What these tokens gather, [N, heads, T, D]. Their keys and values are added to `memory`, which has room for more than
/// it holds, so that a token costs no copy of those before it. Padding on the left is looked at by itself alone.
at::Tensor attend_further(const NextTokens& next, const DecodingPoint& point, Tensors& memory);

}  // namespace trainrun
