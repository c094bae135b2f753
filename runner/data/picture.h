#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

/// The picture of an input [C, H, W], [height, width, 1 or 3] uint8: of numbers in [0, 1] as they are, of others
/// stretched from the least to the largest of a channel; undefined where it is no picture.
at::Tensor picture_of(const at::Tensor& input);

}  // namespace trainrun
