#pragma once

#include <optional>

#include "registry/kernels/max_pool_window.h"
#include "registry/layers/sizes.h"

namespace trainrun {

/// The window that every pooling but the adaptive ones has.
template <int kDims>
struct PoolWindow {
  Sizes<kDims> kernel_size;
  std::optional<Sizes<kDims>> stride;
  bool ceil_mode = false;
  Sizes<kDims> step() const { return stride.value_or(kernel_size); }
};

/// torch.nn.MaxPool1d, MaxPool2d, MaxPool3d.
template <int kDims>
struct MaxPool : PoolWindow<kDims> {
  Sizes<kDims> padding = 0;
  Sizes<kDims> dilation = 1;
  bool return_indices = false;
  static void describe(Fields<MaxPool>& f);  // these in poolings.cpp
  void check(Checker& checker) const;
  Layer build(const LayerInputs& in) const;
  void onnx(OnnxForm& form) const;
};

kernels::MaxPoolWindow window_of(const MaxPool<2>& pool);

}  // namespace trainrun
