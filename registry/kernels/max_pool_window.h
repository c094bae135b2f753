#pragma once

#include <array>
#include <cstdint>

namespace trainrun::kernels {

/// The window of a MaxPool2d, height before width, with torch.nn.MaxPool2d's meaning. `stride` has no default here:
/// whoever reads a recipe knows that it is `kernel_size` unless given.
struct MaxPoolWindow {
  std::array<int64_t, 2> kernel_size;
  std::array<int64_t, 2> stride;
  std::array<int64_t, 2> padding = {0, 0};
  std::array<int64_t, 2> dilation = {1, 1};
  bool ceil_mode = false;
};

}  // namespace trainrun::kernels
