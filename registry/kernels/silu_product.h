#pragma once

#include <ATen/core/Tensor.h>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// Whether `silu_product` computes it in one pass: plain CPU tensors of equal sizes without gaps, both of float32 or both
/// of bfloat16.
bool supports_silu_product(const at::Tensor& gate, const at::Tensor& up);

/// SiLU(gate) * up, the middle of a SwiGLU, in one pass over memory and as one node of autograd, which keeps gate and up
/// but not SiLU(gate). Computed in float32 and rounded once: 1e-6 from ATen's operations, in bfloat16 nearer to the exact
/// result than these. Gradients of higher order are those of ATen's operations, and so is everything that is not
/// supported. `path` forces the instructions, for tests: it must be available.
at::Tensor silu_product(const at::Tensor& gate, const at::Tensor& up, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
