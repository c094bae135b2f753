#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

/// What the module of a batch normalization can compute by own loops, for fusions.
class NormByRows {
 public:
  NormByRows() = default;
  NormByRows(const NormByRows&) = delete;
  NormByRows& operator=(const NormByRows&) = delete;
  virtual ~NormByRows() = default;
  /// batch_norm(input), by those loops where they can.
  virtual at::Tensor by_rows(const at::Tensor& input) = 0;
  /// relu(batch_norm(input) + added); `added` may be undefined.
  virtual at::Tensor then_relu(const at::Tensor& input, const at::Tensor& added) = 0;
};

}  // namespace trainrun
