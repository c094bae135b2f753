#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "registry/layers/sizes.h"

namespace trainrun {

/// torch.nn.Conv1d, Conv2d, Conv3d, and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
template <int kDims, bool kTransposed>
struct Convolution {
  using Padding = std::conditional_t<kTransposed, Sizes<kDims>, std::variant<Sizes<kDims>, std::string>>;

  int64_t out_channels = 0;
  Sizes<kDims> kernel_size;
  Sizes<kDims> stride = 1;
  Padding padding = Sizes<kDims>(0);
  Sizes<kDims> output_padding = 0;  // of a transposed one
  Sizes<kDims> dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";
  std::optional<int64_t> in_channels;

  static void describe(Fields<Convolution>& f);  // these in convolutions.cpp
  void check(Checker& checker) const;
  Layer build(const LayerInputs& in) const;
  void onnx(OnnxForm& form) const;

 private:
  using Function = std::function<at::Tensor(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias)>;

  bool is_same() const;
  Function function() const
    requires kTransposed;
  Function function() const
    requires(!kTransposed);
  std::vector<int64_t> added_points() const;
};

}  // namespace trainrun
