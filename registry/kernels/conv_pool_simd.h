#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of conv_pool.h, on bare memory. Declarations only: sources that are compiled for each kind of instructions
// include this header (see README.md).

namespace trainrun::kernels {

/// A convolution of stride 1 and the pooling of 2x2 after it. x is [images][channels][height][width], the weights are
/// [filters][channels][taps][taps] in float32, y is [images][filters][out_height][out_width].
struct ConvPool {
  int64_t images, channels, height, width;
  int64_t filters, taps, padding;
  int64_t out_height, out_width;  // after the pooling
  bool is_bfloat16;               // x, y and its gradient are; so are the weights, in float32
  bool has_relu;                  // between the two

  /// Rows of a channel that windows reach, which are kept as columns of even numbers, then of odd ones.
  int64_t rows() const { return 2 * out_height + taps - 1; }
  int64_t row_size() const { return 2 * half_size(); }
  int64_t half_size() const { return (out_width + taps / 2 + 15) / 16 * 16 + 16; }
  int64_t image_size() const { return channels * rows() * row_size(); }
};

/// An image as `ConvPool::rows` and their halves say, zeros around it, in float32: to[channel][row][parity][column].
TRAINRUN_ON_EACH_PATH(void conv_pool_halves(const ConvPool& shape, const void* image, float* to))
/// The outputs of one image, and the winners' numbers in their windows (kNoWinner where a ReLU lets nothing through),
/// which may be null. `bias` may be null.
TRAINRUN_ON_EACH_PATH(void conv_pool_forward(const ConvPool& shape, const float* halves, const float* weights,
                                             const float* bias, void* y, uint8_t* winners))
/// Adds to sums[filter][channel * taps * taps + tap] what some images give to the gradients of the weights of the
/// filters [begin, end), and to bias[filter]. grad_y and winners are those of the first of these images.
TRAINRUN_ON_EACH_PATH(void conv_pool_backward(const ConvPool& shape, const float* halves, int64_t images,
                                              const void* grad_y, const uint8_t* winners, int64_t begin, int64_t end,
                                              double* sums, double* bias))

}  // namespace trainrun::kernels
