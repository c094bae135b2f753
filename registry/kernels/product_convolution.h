#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace trainrun::kernels {

/// A convolution as one product of matrices, without autograd: a row for what each output point sees of its image, its
/// patch, times a column for each filter. With filters of 1x1 the patches are the points of x, which lie in memory as
/// they are needed; those of 3x3 are gathered, in bfloat16 only. Equal to the definition but for the order of sums; an infinite
/// weight gives NaN where it meets padding. bfloat16 is multiplied with weights rounded to it, and summed in float32.
class ProductConvolution {
 public:
  /// Of x [N, C, H, W] and weights [K, C, R, S] as these are; float32 takes 1x1 without padding.
  ProductConvolution(at::IntArrayRef x, at::IntArrayRef weight, std::array<int64_t, 2> stride,
                     std::array<int64_t, 2> padding, bool is_bfloat16);

  /// x and what is returned are channels_last, of float32 or bfloat16; weights and bias (or an undefined tensor) are
  /// float32 and contiguous.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;
  /// The gradient of x, channels_last, from that of the output, which must be channels_last.
  at::Tensor input_gradient(const at::Tensor& grad_y, const at::Tensor& weight) const;
  /// Adds the gradient of x to `sum`, channels_last and of float32, with the same numbers; false, and nothing is done, where
  /// that takes no less time than adding it later.
  bool add_input_gradient(const at::Tensor& sum, const at::Tensor& grad_y, const at::Tensor& weight) const;
  /// The gradient of the weights, contiguous and float32, in the memory where it is wanted, if there is some; x and grad_y
  /// must be channels_last.
  at::Tensor filter_gradient(const at::Tensor& x, const at::Tensor& grad_y, const at::Tensor& weight) const;

 private:
  static constexpr size_t kTaps = 9;  // where patches are gathered

  int64_t taps() const { return kernel_[0] * kernel_[1]; }
  /// Numbers of a patch: by channel, then by tap, as weights have them.
  int64_t depth() const { return channels_ * taps(); }
  bool sees_points() const { return taps() == 1 && padding_[0] == 0 && padding_[1] == 0; }
  at::Tensor patches(const at::Tensor& x) const;
  at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const at::Tensor& bias) const;
  bool is_own(const at::Tensor& a, const at::Tensor& b) const;
  at::Tensor sum_of_patches(const at::Tensor& patches) const;
  std::array<int64_t, kTaps> seen_by(int64_t output) const;
  int64_t images_of_thread() const;

  int64_t images_, channels_, filters_;
  std::array<int64_t, 2> image_, kernel_, stride_, padding_, out_;
  bool is_bfloat16_;
};

}  // namespace trainrun::kernels
