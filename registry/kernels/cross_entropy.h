#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun::kernels {

/// Whether `cross_entropy` computes the loss of these tensors itself: `logits` [R, C] float32 or float64, or of any
/// floating type under autocast, and class indices `target` [R] (int64), plain CPU tensors, contiguous, seen by no
/// dispatcher mode; and so many numbers that passing over them less often pays.
bool supports_cross_entropy(const at::Tensor& logits, const at::Tensor& target);

/// at::cross_entropy_loss(logits, target, {}, reduction, ignore_index): the same loss and gradients, bit for bit, as long
/// as the logits of rows that do not count are finite; differentiable any number of times. It goes through some rows of
/// the logits at a time, which stay in the processor's caches, and keeps nothing of their size for the backward pass but
/// the logits themselves. ATen makes, and reads again, two to four more tensors of their size: for GPT-2 and 1,024 tokens,
/// 206 MB each. Tensors for which `supports_cross_entropy` is false are computed by ATen.
/// Throws what ATen throws (c10::IndexError) where a target is not a class.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, int64_t reduction, int64_t ignore_index);

}  // namespace trainrun::kernels
