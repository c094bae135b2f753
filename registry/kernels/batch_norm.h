#pragma once

#include <ATen/core/Tensor.h>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// What at::batch_norm reads besides its input; tensors [channels], which may be undefined as there.
struct BatchNorm {
  at::Tensor weight, bias, running_mean, running_var;
  bool uses_batch = true;  // its mean and variance; else those of the running statistics
  double momentum = 0.1, eps = 1e-5;
};

/// Whether the numbers of x, [N, C, H, W] or [N, C], lie as rows of channels, without gaps.
bool is_of_rows(const at::Tensor& x);

/// batch_norm(x), computed as the function below says.
at::Tensor batch_norm(const at::Tensor& x, const BatchNorm& norm, CpuPath path = best_cpu_path());

/// relu(batch_norm(x) + added); `added`, of x's shape, may be undefined. Where x is a plain CPU tensor of float32 or
/// bfloat16, [N, C, H, W] with channels last or [N, C], it is computed in two passes over x, and the gradients in two
/// more: equal but for the order of sums, and, in bfloat16, for roundings between the operations, of which there are none.
/// Otherwise by ATen's operations. `path` forces the instructions, for tests: it must be available.
at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& added, const BatchNorm& norm,
                           CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
