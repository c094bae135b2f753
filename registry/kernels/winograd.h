#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/winograd_simd.h"

namespace trainrun::kernels {

/// A convolution by Winograd's algorithm, without autograd. Where tiles are whole, it takes 0.22 to 0.44 of the
/// multiplications of the definition for a stride of 1, nine sixteenths for 2. Sums are in another order and through
/// other numbers than oneDNN's: against float64, the rms error of outputs and of the input's gradient is up to 3 times
/// oneDNN's, of the filters' gradient up to 10 times (tests/registry/winograd_test.cpp). An infinity or NaN in the input
/// reaches all outputs of its tile. The result depends on the number of threads as far as sums over tiles are divided
/// among them.
/// Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks".
class Winograd {
 public:
  /// Of x [N, C, H, W] and weights [K, C, taps, taps] as these are. `tile`: null for the one that multiplies least.
  Winograd(at::IntArrayRef x, at::IntArrayRef weight, int64_t stride, std::array<int64_t, 2> padding, bool is_bfloat16,
           std::optional<WinogradTile> tile, CpuPath path);

  /// x and what is returned are channels_last, of float32 or bfloat16; weights and bias (or an undefined tensor) are
  /// float32 and contiguous.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;
  /// The gradient of x, channels_last, from that of the output, which must be channels_last.
  at::Tensor input_gradient(const at::Tensor& grad_y, const at::Tensor& weight) const;
  /// The gradient of the weights, contiguous and float32; both must be channels_last.
  at::Tensor filter_gradient(const at::Tensor& x, const at::Tensor& grad_y) const;

 private:
  class Points;

  void convolve(bool backward, const at::Tensor& from, const at::Tensor& weight, const float* bias,
                const at::Tensor& to) const;
  void convolve_few(bool backward, const void* from, const float* weight, const float* bias, void* to) const;
  void convolve_many(bool backward, const void* from, const float* weight, const float* bias, void* to) const;
  void gather_filter_gradient(const void* x, const void* grad_y, WinogradTiles tiles, int64_t first_channel,
                              int64_t channels, float* to) const;

  int64_t points() const;
  int64_t tiles() const { return shape_.images * shape_.tiles_high * shape_.tiles_wide; }
  at::Tensor empty_like(const at::Tensor& of, std::array<int64_t, 4> sizes) const;

  WinogradShape shape_;
  CpuPath path_;
};

/// How many multiplications a tile's algorithm takes for each that the definition takes: at best 0.25 for 3x3, and 0.56
/// where its stride is 2.
double winograd_work(WinogradTile tile, int64_t out_height, int64_t out_width);
/// The one that multiplies least, for square filters of 3 or 5 taps, of 3 also with a stride of 2; null for others.
/// `keeps_size`: the output is as large as the image, by padding.
std::optional<WinogradTile> best_winograd_tile(int64_t taps, int64_t stride, bool keeps_size, int64_t out_height,
                                               int64_t out_width);

}  // namespace trainrun::kernels
