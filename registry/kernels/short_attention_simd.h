#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/attention_shape.h"
#include "registry/kernels/simd.h"

// The loops of short_attention.h, on bare memory. Declarations only: sources that are compiled for each kind of
// instructions include this header (see README.md).

namespace trainrun::kernels {

/// Floats of scratch memory that a thread needs for a pass.
TRAINRUN_ON_EACH_PATH(int64_t attention_scratch(const AttentionShape& shape, bool backward))
/// The output for the heads of keys [begin, end) of batch * key_heads. `scratch` is aligned to 64 bytes.
TRAINRUN_ON_EACH_PATH(void attention_forward(const AttentionShape& shape, const AttentionTensors& tensors,
                                             int64_t begin, int64_t end, float* scratch))
/// The gradients, likewise.
TRAINRUN_ON_EACH_PATH(void attention_backward(const AttentionShape& shape, const AttentionTensors& tensors,
                                              int64_t begin, int64_t end, float* scratch))

}  // namespace trainrun::kernels
