#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace trainrun::kernels {

/// What decides who computes a two-dimensional convolution of stride 1 or 2 (of both dimensions), without dilation and
/// groups.
struct ConvolutionSizes {
  int64_t channels, filters;
  int64_t kernel_height, kernel_width;
  int64_t stride;
  int64_t out_height, out_width;
  int64_t images = 0;       // 0: not known yet; there are enough
  bool keeps_size = false;  // the output is as large as the image, by padding
};

/// Whether Winograd's algorithm is quicker than oneDNN's direct one on this processor: a rule of the sizes alone, so that
/// a job computes the same on every start. From measurements on AMD's Zen 4 and Zen 3, of stride 2 in float32 only
/// (tools/bench/convolutions.cpp, `trainrun profile`).
bool winograd_pays(const ConvolutionSizes& sizes, bool is_bfloat16);

/// Whether a convolution in bfloat16 is quicker as one product of matrices than by oneDNN: on processors that multiply
/// bfloat16, over images of few points. A rule as the one above (Zen 4, `trainrun profile`).
bool patch_product_pays(const ConvolutionSizes& sizes);

/// conv2d(x, weight, bias, stride, padding) of x [N, C, H, W] and weight [K, C, taps, taps]; `bias` [K] may be undefined.
/// Computed by Winograd's algorithm (winograd.h, which says how exactly) where it pays, else in bfloat16 as a product of
/// matrices (product_convolution.h) where that does, if x is a plain CPU tensor of float32, or of what autocast makes
/// bfloat16: the weights, their gradients and all sums stay float32 then. The output has the memory format that ATen's
/// would have, on which random draws depend. Otherwise, and for derivatives of second and higher order, ATen's conv2d
/// computes it.
at::Tensor fast_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride,
                       std::array<int64_t, 2> padding);

/// Whether a convolution of 1x1 of any stride is quicker as one product of matrices than by oneDNN on this processor: a
/// rule of the sizes alone, and of who computes products (own_products.h); `points` are those of an output image. From
/// measurements on AMD's Zen 3 with AVX2 and Zen 4 with AVX-512 (`trainrun profile`).
bool point_product_pays(int64_t channels, int64_t filters, int64_t points);

/// conv2d(x, weight, bias, stride) of x [N, C, H, W] and weight [K, C, 1, 1]; `bias` [K] may be undefined. Where x is a
/// plain CPU tensor with channels last, of float32, or of what autocast makes bfloat16 where patch_product_pays, it is one
/// product of the points with the weights, and so are the gradients: equal but for the order of sums, and the weights'
/// gradient is float32. Otherwise, and for derivatives of second and higher order, ATen computes it.
at::Tensor point_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        std::array<int64_t, 2> stride);

/// The same, and x once more, for another that reads it and does not change it. The gradient that the other gives is added
/// to in the last pass of the product that computes this one's, if its memory is nobody else's.
std::array<at::Tensor, 2> point_conv2d_passing_on(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                                  std::array<int64_t, 2> stride);

}  // namespace trainrun::kernels
