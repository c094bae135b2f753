#pragma once

#include <ATen/core/Tensor.h>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/linear_function.h"

namespace trainrun::kernels {

/// at::linear(x, weight, bias) of x [..., in] and weight [out, in]; `bias` [out] may be undefined. Where `few_rows_pay`
/// and x is a plain CPU tensor of float32, it is computed here, equal but for the order of sums; the gradients are
/// products of ATen's, as those of at::linear. Otherwise it is `linear_function` where this computes it. `path` forces the
/// instructions, for tests: it must be available.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  CpuPath path = best_cpu_path());

/// The same with an activation, and where the weight may be transposed.
at::Tensor activated_linear(const at::Tensor& x, const LinearTerms& terms);

/// Whether so few rows of x are multiplied sooner here than by MKL on this processor: a rule of the sizes alone, so that
/// a job computes the same on every start. From measurements on AMD's Zen 4, tools/bench/few_rows.cpp.
bool few_rows_pay(int64_t rows, int64_t in, int64_t out);

}  // namespace trainrun::kernels
