#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainrun::kernels {

/// Whether `matrix_product` computes a [rows, depth] b [depth, columns] here: the processor must have AVX-512, and for
/// bfloat16 its products; `a` be a CPU tensor of bfloat16 and `b` one of bfloat16 or float32, or both of float32, each a
/// matrix without gaps or one transposed; and the sizes must be such that it takes less time than ATen
/// (tools/bench/matrix_products.cpp). A rule of the processor and the sizes alone, so that a job computes the same on every
/// start.
bool supports_matrix_product(const at::Tensor& a, const at::Tensor& b);

/// a b + bias, summed in float32, as a tensor of `type`: of float32, or of bfloat16 where a is. Where a is of bfloat16,
/// what `b` has in float32 is rounded to it as it is read, and so is `bias` [columns], of float32 or undefined, as autocast
/// does. Each number is summed in the order of `depth`, in pieces, the same for any number of threads. `place`: a tensor
/// without gaps that is written and returned, if it is defined.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const at::Tensor& bias = {},
                          const at::Tensor& place = {});

/// Adds a b to `sum`, of float32 and without gaps: the same numbers as if the product were added to it.
void add_matrix_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b);

/// Whether this processor multiplies bfloat16, and ATEN_CPU_CAPABILITY allows it.
bool has_bfloat16_products();

}  // namespace trainrun::kernels
