#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "tests/doctest.h"

namespace trainrun::test {

inline double rms(const at::Tensor& x) { return x.to(at::kDouble).square().mean().sqrt().item<double>(); }

/// The rms error of x, against that of `exact`, in float64; a number large beyond any bound where all of `exact` is 0.
inline double error_of(const at::Tensor& x, const at::Tensor& exact) {
  return rms(x.to(at::kDouble) - exact) / (rms(exact) + 1e-30);
}

/// Checks y and the gradients of `inputs` that follow from `grad_y` against `exact`, y first: their types are those of the
/// inputs, and their errors below `bound`.
inline void check_with_gradients(const at::Tensor& y, const std::vector<at::Tensor>& inputs, const at::Tensor& grad_y,
                                 const std::vector<at::Tensor>& exact, double bound) {
  CHECK(y.dtype() == inputs[0].dtype());
  CHECK(error_of(y, exact[0]) < bound);
  const std::vector<at::Tensor> gradients = torch::autograd::grad({y}, inputs, {grad_y});
  for (size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(i);
    CHECK(gradients[i].dtype() == inputs[i].dtype());
    CHECK(error_of(gradients[i], exact[i + 1]) < bound);
  }
}

}  // namespace trainrun::test
