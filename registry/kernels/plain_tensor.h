#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace trainrun::kernels {

/// Whether nothing but the CPU's kernels, autograd and autocast would see an operation on `x`: no mode, tracer, wrapper,
/// view that negates or forward-mode gradient.
bool is_plain_cpu(const at::Tensor& x);
/// Whether it is plain, of float32 and without gaps.
bool is_dense_float(const at::Tensor& x);

/// As LibTorch's operators take what may be missing: nothing for an undefined tensor.
inline std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// x [rows, columns] turned, without what `t` costs: three calls of ATen's dispatcher.
at::Tensor turned(const at::Tensor& x);

/// The type in which autocast, or without it PyTorch, multiplies x with weights of float32: float32 or bfloat16; nothing
/// for types that are left to ATen.
std::optional<at::ScalarType> type_of_product(const at::Tensor& x);

}  // namespace trainrun::kernels
