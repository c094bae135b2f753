#pragma once

#include <string>

#include "registry/kinds/layer.h"

namespace trainrun {

/// A size in each of `kDims` dimensions (1: length; 2: height, width; 3: depth, height, width): a number, or a list.
template <int kDims>
using Sizes = Ints<static_cast<size_t>(kDims)>;

/// "[N, C, H, W]": what flows through layers of `kDims` dimensions.
template <int kDims>
constexpr const char* kImage = kDims == 1   ? "[N, C, L]"
                               : kDims == 2 ? "[N, C, H, W]"
                                            : "[N, C, D, H, W]";

/// "convolution" -> "2-D convolution over [N, C, H, W]", the documentation line of a family's member.
template <int kDims>
std::string doc_of_dims(const std::string& what) {
  return std::to_string(kDims) + "-D " + what + " " + kImage<kDims>;
}

/// Throws LayerError unless input 0 has a batch, channels and `kDims` more dimensions.
template <int kDims>
void require_image(const LayerInputs& in) {
  in.require_dims(kDims + 2, kDims + 2, kImage<kDims>);
}

/// Throws LayerError unless input 0, padded, has room for one window. With `ceil_mode` the window may reach as far
/// beyond the border as a step is long.
template <int kDims>
void require_window(const LayerInputs& in, const Sizes<kDims>& kernel_size, const Sizes<kDims>& stride,
                    const Sizes<kDims>& padding, const Sizes<kDims>& dilation, bool ceil_mode) {
  for (size_t i = 0; i < kDims; ++i) {
    const int64_t window = dilation[i] * (kernel_size[i] - 1) + 1;
    const int64_t size = in.shape()[i + 2];
    if (window <= size + 2 * padding[i] + (ceil_mode ? stride[i] - 1 : 0)) continue;
    throw LayerError("a window of " + std::to_string(window) + " does not fit an input of " + std::to_string(size) +
                     " with a padding of " + std::to_string(padding[i]));
  }
}

/// Defines `op<kDims>(…)`, which calls at::op1d, at::op2d or at::op3d (and then `suffix`): LibTorch has most operations
/// once for each number of dimensions.
#define TRAINRUN_OP_OF_DIMS(op, suffix)            \
  template <int kDims, class... Arguments>         \
  auto op##suffix(const Arguments&... arguments) { \
    if constexpr (kDims == 1) {                    \
      return at::op##1d##suffix(arguments...);     \
    } else if constexpr (kDims == 2) {             \
      return at::op##2d##suffix(arguments...);     \
    } else {                                       \
      return at::op##3d##suffix(arguments...);     \
    }                                              \
  }

}  // namespace trainrun
