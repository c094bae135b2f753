#pragma once

#include "registry/kernels/attention_shape.h"

// The loops of short_attention.h by AVX-512's products of bfloat16, for shapes of bfloat16 where has_bfloat16_products()
// (matrix_product.h). Weights and gradients of scores are rounded to bfloat16 before they are multiplied, as ATen does;
// softmaxes and sums are float32. Declarations only: a source compiled for these products includes this header.

namespace trainrun::kernels {

int64_t attention_scratch_bf16(const AttentionShape& shape, bool backward);
void attention_forward_bf16(const AttentionShape& shape, const AttentionTensors& tensors, int64_t begin, int64_t end,
                            float* scratch);
void attention_backward_bf16(const AttentionShape& shape, const AttentionTensors& tensors, int64_t begin, int64_t end,
                             float* scratch);

}  // namespace trainrun::kernels
