#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

/// What the module of a batch normalization can compute with it, for fusions.
class NormThenRelu {
 public:
  NormThenRelu() = default;
  NormThenRelu(const NormThenRelu&) = delete;
  NormThenRelu& operator=(const NormThenRelu&) = delete;
  virtual ~NormThenRelu() = default;
  /// relu(batch_norm(input) + added); `added` may be undefined.
  virtual at::Tensor then_relu(const at::Tensor& input, const at::Tensor& added) = 0;
};

}  // namespace trainrun
