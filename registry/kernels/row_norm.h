#pragma once

#include <ATen/core/Tensor.h>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// What a LayerNorm or RMSNorm over the last dimension has.
struct NormTerms {
  at::Tensor weight = {};  // [C]; undefined: 1
  at::Tensor bias = {};    // [C]; undefined: 0
  double eps = 1e-5;       // added to the variance, or to the mean square
  bool is_rms = false;     // RMSNorm
};

/// What is added to the input first.
struct NormAddend {
  at::Tensor tensor = {};  // undefined: nothing
  double dropout = 0;      // probability of a zero in the place of what is added
  at::Tensor kept = {};    // of x's sizes, of bytes: 0 where that happens; undefined: it is drawn
};

struct Normalized {
  at::Tensor y;     // float32; undefined where it was not wanted
  at::Tensor half;  // the same, rounded to bfloat16; undefined where it was not wanted
  at::Tensor sum;   // what was normalized, where something was added
};

/// Whether `row_norm` computes it: plain CPU tensors without gaps, of equal sizes; x, weight and bias of float32, the
/// addend of float32 or bfloat16.
bool supports_row_norm(const at::Tensor& x, const NormAddend& addend, const NormTerms& terms);

/// The sum of x [..., C] and the addend, and its norm, in one pass; gradients in another, of the first order, those of higher ones by ATen's
/// operations. Computed in float32: equal to ATen's operations but for the order of sums (1e-6 of the result), the sum
/// bit for bit. Where x is added to what a dropout leaves, this draws as at::dropout does. The gradients of weight and
/// bias do not depend on the number of threads. `path` forces the instructions, for tests: it must be available.
Normalized row_norm(const at::Tensor& x, const NormAddend& addend, const NormTerms& terms, bool wants_plain,
                    bool wants_half, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
