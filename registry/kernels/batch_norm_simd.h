#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of batch_norm.h, on bare memory. Declarations only: sources that are compiled for each kind of instructions
// include this header (see README.md).

namespace trainrun::kernels {

/// Rows [channels] without gaps, of float32 or bfloat16.
struct NormRows {
  int64_t rows, channels;
  bool is_bfloat16;
};

/// Of each channel, in float32: what is normalized is (x - mean) * scale + bias.
struct NormScale {
  const float *mean, *scale, *bias;
};

/// Adds, for each channel, the sums of x - center and of its square.
TRAINRUN_ON_EACH_PATH(void norm_sums(const NormRows& shape, const void* x, const float* center, double* sums,
                                     double* squares))
/// y = the larger of 0 and (x - mean) * scale + bias + added. `added` may be null.
TRAINRUN_ON_EACH_PATH(void norm_relu(const NormRows& shape, const void* x, const void* added, const NormScale& by,
                                     void* y))
/// Adds, for each channel, the sums of the gradient g and of g * (x - mean), where g counts only where y is above 0;
/// where `y` is null, it is computed anew from x. `masked`, which may be null, gets g and zeros where it does not count.
TRAINRUN_ON_EACH_PATH(void norm_gradient_sums(const NormRows& shape, const void* x, const void* y, const NormScale& by,
                                              const void* g, void* masked, double* sums, double* products))

/// The gradient of x is scale * g + of_x * (x - mean) + rest, by channel.
struct NormGradient {
  const float *of_x, *rest;
};
/// `is_masked`: g is masked already.
TRAINRUN_ON_EACH_PATH(void norm_gradient(const NormRows& shape, const void* x, const void* g, const NormScale& by,
                                         const NormGradient& gradient, bool is_masked, void* to))

}  // namespace trainrun::kernels
