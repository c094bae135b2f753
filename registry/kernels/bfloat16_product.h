#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun::kernels {

/// Whether `bfloat16_product` computes a [rows, depth] b [depth, columns] here: the processor must multiply bfloat16
/// (AVX-512), `a` be a CPU tensor of bfloat16, `b` one of bfloat16 or float32, each a matrix without gaps or one
/// transposed; and the sizes must be such that it takes less time than ATen (tools/bench/bfloat16_products.cpp). A rule
/// of the processor and the sizes alone, so that a job computes the same on every start.
bool supports_bfloat16_product(const at::Tensor& a, const at::Tensor& b);

/// a b + bias, summed in float32, as a tensor of `type`: bfloat16 or float32. What `b` has in float32 is rounded to
/// bfloat16 as it is read. `bias` [columns] of float32 may be undefined; it is rounded to bfloat16 first, as autocast does.
/// Each number is summed in the order of `depth`, in pieces, the same for any number of threads.
at::Tensor bfloat16_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const at::Tensor& bias = {});

/// Whether this processor multiplies bfloat16, and ATEN_CPU_CAPABILITY allows it.
bool has_bfloat16_products();

}  // namespace trainrun::kernels
