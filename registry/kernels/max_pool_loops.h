#pragma once

#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of max_pool.h, on bare memory and over a range of images. Declarations only: sources that are
// compiled for each kind of instructions include this header (see README.md).

namespace trainrun::kernels {

/// Sizes of one pooling. Memory is [images, height, width, channels]: a channels_last tensor as it is; a contiguous one
/// as N * C images of one channel.
struct PoolGeometry {
  int64_t images, channels;
  int64_t height, width, out_height, out_width;
  int64_t kernel_height, kernel_width;  // at most 255 points
  int64_t stride_height, stride_width;
  int64_t padding_height, padding_width;
  int64_t dilation_height, dilation_width;
};

/// In place of a winner's number (row * kernel_width + column in its window): the ReLU lets no gradient through, since
/// the largest value is not above 0.
inline constexpr uint8_t kNoWinner = 255;

/// y = max_pool2d(relu(x)) of the images from `begin` to `end`. The first of equal values wins, and the last NaN, as in
/// ATen; -0.0 passes the ReLU as it is. `winners` may be null.
template <class T>
void relu_max_pool_forward(const PoolGeometry& geometry, const T* x, T* y, uint8_t* winners, int64_t begin,
                           int64_t end);
/// Adds up in each point of x the gradients of the windows that it won, in their order.
template <class T>
void relu_max_pool_backward(const PoolGeometry& geometry, const T* grad_y, const uint8_t* winners, T* grad_x,
                            int64_t begin, int64_t end);
/// The reverse of the backward pass, which is its own derivative: each window takes what its winner has, or 0.
template <class T>
void relu_max_pool_gather(const PoolGeometry& geometry, const T* of_x, const uint8_t* winners, T* of_y, int64_t begin,
                          int64_t end);

/// The same, for contiguous float32 or bfloat16, and windows of 2x2 with a step of 2 that all lie within x; with a ReLU
/// before it or without: max_pool_simd.cpp.
struct HalvingPool {
  PoolGeometry geometry;
  bool is_bfloat16, has_relu;
};
TRAINRUN_ON_EACH_PATH(void max_pool_2x2_forward(const HalvingPool& pool, const void* x, void* y, uint8_t* winners,
                                                int64_t begin, int64_t end))
TRAINRUN_ON_EACH_PATH(void max_pool_2x2_backward(const HalvingPool& pool, const void* grad_y, const uint8_t* winners,
                                                 void* grad_x, int64_t begin, int64_t end))

}  // namespace trainrun::kernels
