#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace trainrun {

/// The PNG file of an image, [height, width, 1 or 3] uint8.
std::string encode_png(const at::Tensor& image);

}  // namespace trainrun
