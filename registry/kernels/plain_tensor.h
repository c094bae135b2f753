#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace trainrun::kernels {

/// Whether nothing but the CPU's kernels, autograd and autocast would see an operation on `x`: no mode, tracer, wrapper,
/// view that negates or forward-mode gradient.
bool is_plain_cpu(const at::Tensor& x);

/// The type in which autocast, or without it PyTorch, multiplies x with weights of float32: float32 or bfloat16; nothing
/// for types that are left to ATen.
std::optional<at::ScalarType> type_of_product(const at::Tensor& x);

}  // namespace trainrun::kernels
