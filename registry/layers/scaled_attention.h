#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "registry/kernels/short_attention.h"

namespace trainrun {

using kernels::AttentionTerms;

/// Attention of queries [N, heads, L, D] over keys and values [N, key heads, S, D], as fast as it can be had: by
/// kernels::short_attention where it computes this, else by at::scaled_dot_product_attention. heads / key heads queries
/// share a head of keys.
at::Tensor scaled_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionTerms& terms);

}  // namespace trainrun
