#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trainrun {

/// The PNG file of an image, [height, width, 1 or 3] uint8; of one with one channel whose pixels are places in a
/// `palette`, three bytes (red, green, blue) for each of up to 256 colours.
std::string encode_png(const at::Tensor& image, const std::vector<uint8_t>& palette = {});

}  // namespace trainrun
