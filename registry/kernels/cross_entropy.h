#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// Whether `cross_entropy` computes the loss of these tensors itself: `logits` [R, C] of float32, or of bfloat16 under
/// autocast, and class indices `target` [R] (int64), plain CPU tensors, contiguous, seen by no dispatcher mode; and so many
/// numbers that passing over them less often pays.
bool supports_cross_entropy(const at::Tensor& logits, const at::Tensor& target);

/// at::cross_entropy_loss(logits, target, {}, reduction, ignore_index), its gradients and theirs, but for rounding (1e-6
/// of them; under autocast, once to the type of the logits): the logits are read once for the loss and once for the
/// gradient, and nothing of their size is kept but the logits themselves. ATen makes, and reads again, two to four more
/// tensors of their size: for GPT-2 and 1,024 tokens, 206 MB each. Rows that do not count are not read.
/// Tensors for which `supports_cross_entropy` is false are computed by ATen, narrow types under autocast in float32.
/// Throws what ATen throws (c10::IndexError) where a target is not a class. `path` forces the instructions, for tests: it
/// must be available.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, int64_t reduction, int64_t ignore_index,
                         CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
