#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace trainrun::kernels {

/// What scaled dot-product attention is given besides queries, keys and values.
struct AttentionTerms {
  at::Tensor mask = {};  // added to the scores, or true where a key is looked at; undefined: none
  double dropout = 0;    // probability
  bool is_causal = false;
  std::optional<double> scale = std::nullopt;  // null: 1 / sqrt(D)
};

}  // namespace trainrun::kernels
