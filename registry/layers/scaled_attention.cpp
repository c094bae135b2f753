#include "registry/layers/scaled_attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace trainrun {
namespace {

/// Each head of keys or values [N, heads, S, D] `times` times: for as many queries as share it.
at::Tensor repeated_heads(const at::Tensor& heads, int64_t times) {
  if (times == 1) return heads;
  return heads.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
}

}  // namespace

at::Tensor scaled_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionTerms& terms) {
  if (kernels::supports_short_attention(query, key, value, terms)) {
    return kernels::short_attention(query, key, value, terms);
  }
  const int64_t times = query.size(1) / key.size(1);
  const auto mask = terms.mask.defined() ? std::optional(terms.mask) : std::nullopt;
  return at::scaled_dot_product_attention(query, repeated_heads(key, times), repeated_heads(value, times), mask,
                                          terms.dropout, terms.is_causal, terms.scale);
}

}  // namespace trainrun
