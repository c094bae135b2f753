#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/max_pool_window.h"

namespace trainrun::kernels {

/// Whether ReLU followed by this pooling can be fused at all, by what is known before there are data: the window has at
/// most 255 points (the winner's place is kept in a byte), and inputs of `dtype` are float32, float64, bfloat16 or
/// half.
bool can_fuse_relu_max_pool2d(const MaxPoolWindow& window, at::ScalarType dtype);

/// Whether `relu_max_pool2d` computes this very tensor itself: what `can_fuse_relu_max_pool2d` asks, and that `x` is a
/// plain CPU tensor of 3 or 4 dimensions, seen by no dispatcher mode and without a forward-mode gradient; contiguous,
/// or channels_last where windows do not overlap; and that no window of the pooling can lie outside of it.
bool supports_relu_max_pool2d(const at::Tensor& x, const MaxPoolWindow& window);

/// max_pool2d(relu(x)) of x [N, C, H, W] or [C, H, W] in one pass; differentiable any number of times. The output and
/// the gradients are those of the two ATen operations, bit for bit, NaN and signed zeros included; but a NaN
/// may be another NaN. The memory format is x's. One byte per output value is kept for the backward pass, where ATen
/// keeps the ReLU's output and 64-bit indices; x may be changed in place afterwards.
///
/// A tensor for which `supports_relu_max_pool2d` is false is computed by the two ATen operations. A window or a shape that max_pool2d refuses is refused with its
/// message (c10::Error). `path` forces the instructions, for tests: it must be available (Error).
at::Tensor relu_max_pool2d(const at::Tensor& x, const MaxPoolWindow& window, std::optional<CpuPath> path = {});

/// Whether `max_pool2d` computes this very tensor itself: contiguous float32 or bfloat16 on a plain CPU, and windows of
/// 2x2 with a step of 2 that lie within it, for which ATen has no vectors.
bool supports_max_pool2d(const at::Tensor& x, const MaxPoolWindow& window);

/// at::max_pool2d, bit for bit; of a tensor for which `supports_max_pool2d` is false, by ATen. Otherwise as
/// `relu_max_pool2d`.
at::Tensor max_pool2d(const at::Tensor& x, const MaxPoolWindow& window, std::optional<CpuPath> path = {});

}  // namespace trainrun::kernels
