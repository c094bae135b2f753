#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of activations after a Linear (linear_function.h), on bare memory. Declarations only: sources that are
// compiled for each kind of instructions include this header (see README.md).

namespace trainrun::kernels {

enum class LoopActivation : int32_t { kNone, kRelu, kGelu, kGeluTanh };

/// Rows of `features` numbers, side by side in memory, one row after the other, of float32 or bfloat16.
struct ActivationShape {
  int64_t features;
  LoopActivation function;
  bool is_bfloat16;
};

/// y = function(x) for the rows [begin, end); y may be x.
TRAINRUN_ON_EACH_PATH(void activate(const ActivationShape& shape, const void* x, void* y, int64_t begin, int64_t end))
/// The gradient of x from that of y, and the sums over the rows of what was not rounded yet, which are added to
/// grad_bias [features]; null: not wanted. A ReLU's x may be its y. Without a function grad_x is not written.
TRAINRUN_ON_EACH_PATH(void activate_back(const ActivationShape& shape, const void* x, const void* grad_y, void* grad_x,
                                         float* grad_bias, int64_t begin, int64_t end))

}  // namespace trainrun::kernels
