#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/max_pool_loops.h"
#include "registry/kernels/max_pool_window.h"

namespace trainrun::kernels {

/// A pooling, with a ReLU before it or without, of tensors of one shape, type and memory format: the three passes, without autograd. Part of
/// max_pool.h's making; an autograd graph keeps it from the forward pass to the backward one.
/// Whether the loops for 2x2 windows with a step of 2 compute it: contiguous, and no window reaches beyond x.
bool is_halving_pool(const at::Tensor& x, const MaxPoolWindow& window);

class MaxPooling : public torch::CustomClassHolder {
 public:
  /// `x` must be supported (`supports_relu_max_pool2d`, or `supports_max_pool2d` without a ReLU). Throws what max_pool2d throws where the window does not fit
  /// it. `path` holds where there is a loop for it; others are computed by
  /// the loops for any window.
  MaxPooling(const at::Tensor& x, const MaxPoolWindow& window, bool has_relu, CpuPath path);

  /// The output, and the winners [the output's shape] (uint8), undefined unless they are asked for.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, bool with_winners) const;
  /// The gradient of x.
  at::Tensor backward(const at::Tensor& grad_y, const at::Tensor& winners) const;
  /// What stands at the winners' places in a tensor of x's shape.
  at::Tensor gather(const at::Tensor& of_x, const at::Tensor& winners) const;

 private:
  const PoolGeometry& geometry() const { return pool_.geometry; }
  at::Tensor empty(const std::vector<int64_t>& shape, const at::TensorOptions& options) const;

  HalvingPool pool_;
  std::vector<int64_t> x_shape_, y_shape_;
  at::MemoryFormat format_;
  bool is_halving_;
  CpuPath path_;
};
using MaxPoolingPtr = c10::intrusive_ptr<MaxPooling>;

}  // namespace trainrun::kernels
