#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// A convolution of stride 1 with zeros around x, and what pools its output by 2x2 windows with a step of 2.
struct ConvPoolTerms {
  int64_t padding = 0;  // at each border, in both dimensions
  bool has_relu = true;
};

/// Whether `conv_max_pool2d` computes such sizes itself: `x` is [N, C, H, W] or [C, H, W] with at most four channels, as
/// a first layer's, `weight` [F, C, 3, 3] or [F, C, 5, 5], and all of the pooled windows lie within the convolution's
/// output: its rows and columns are even, or the last is left out as without ceil_mode.
bool can_fuse_conv_max_pool2d(at::IntArrayRef x, at::IntArrayRef weight, const ConvPoolTerms& terms);

/// max_pool2d(relu(conv2d(x, weight, bias))) in one pass, without the convolution's output in memory; `bias` may be
/// undefined. It is computed here if `can_fuse_conv_max_pool2d` says so, x is a plain contiguous CPU tensor of float32
/// (bfloat16, or float32 under autocast to it) that wants no gradient, and the weights are float32; otherwise by ATen. Equal
/// but for the order of sums. `path` forces the instructions, for tests: it must be available.
at::Tensor conv_max_pool2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const ConvPoolTerms& terms, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
