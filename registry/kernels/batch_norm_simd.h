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
/// y = (x - mean) * scale + bias + added, or with a ReLU the larger of 0 and that. `added` may be null; without a ReLU it
/// is.
TRAINRUN_ON_EACH_PATH(void norm_output(const NormRows& shape, const void* x, const void* added, const NormScale& by,
                                       bool has_relu, void* y))
/// Where the gradient of the output counts: everywhere, or of a ReLU where its output is above 0, which is read, or
/// computed anew from x.
enum class NormMask : uint8_t { kNone, kRead, kComputed };
/// Adds, for each channel, the sums of the gradient g and of g * (x - mean), where g counts. Where the output `y` is read,
/// `masked` gets g and zeros where it does not count; else both are null.
TRAINRUN_ON_EACH_PATH(void norm_gradient_sums(const NormRows& shape, NormMask mask, const void* x, const void* y,
                                              const NormScale& by, const void* g, void* masked, double* sums,
                                              double* products))

/// The gradient of x is scale * g + of_x * (x - mean) + rest, by channel.
struct NormGradient {
  const float *of_x, *rest;
};
/// The mask is computed, if at all: where it was read, g is what was made of it.
TRAINRUN_ON_EACH_PATH(void norm_gradient(const NormRows& shape, NormMask mask, const void* x, const void* g,
                                         const NormScale& by, const NormGradient& gradient, void* to))

}  // namespace trainrun::kernels
