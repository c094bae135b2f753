#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun::test {

inline double rms(const at::Tensor& x) { return x.to(at::kDouble).square().mean().sqrt().item<double>(); }

/// The rms error of x, against that of `exact`, in float64; a number large beyond any bound where all of `exact` is 0.
inline double error_of(const at::Tensor& x, const at::Tensor& exact) {
  return rms(x.to(at::kDouble) - exact) / (rms(exact) + 1e-30);
}

}  // namespace trainrun::test
