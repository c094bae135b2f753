#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun::kernels {

/// Whether nothing but the CPU's kernels, autograd and autocast would see an operation on `x`: no mode, tracer, wrapper,
/// view that negates or forward-mode gradient.
bool is_plain_cpu(const at::Tensor& x);

}  // namespace trainrun::kernels
