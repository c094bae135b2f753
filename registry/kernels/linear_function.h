#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

enum class Activation : int32_t { kNone, kRelu, kGelu, kGeluTanh };

/// What a Linear has.
struct LinearTerms {
  at::Tensor weight = {};      // [out, in]
  at::Tensor bias = {};        // [out]; undefined: none
  bool is_transposed = false;  // the weight is [in, out]
  Activation activation = Activation::kNone;
};

/// Whether `linear_function` computes it: plain CPU tensors, x of float32 or, under autocast, bfloat16, weight and bias of
/// float32 without gaps; x has at least one row, and a gradient of anything is wanted.
bool supports_linear_function(const at::Tensor& x, const LinearTerms& terms);

/// activation(x weight^T + bias) of x [..., in] as one node of autograd, in float32 or under autocast in bfloat16. Products
/// are those of matrix_product.h where `uses_own_products()`, else ATen's, and so are then the bits of all without an
/// activation, but for the order of a bias's sum in bfloat16. An activation is computed in float32 in one pass after the
/// product, its gradient in another that also sums that of the bias: 1e-6 from ATen's. Weights are cast once, and their
/// gradients become float32 at once. Gradients of higher order are those of ATen's operations. `path` forces the
/// instructions, for tests: it must be available.
at::Tensor linear_function(const at::Tensor& x, const LinearTerms& terms, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
