#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace trainrun {

/// The ways to compute new pixels that Resize and its like offer.
inline constexpr std::array kInterpolations = {"nearest", "nearest-exact", "bilinear", "bicubic"};

/// Images [N, C, H, W] of floating point or bytes in a new size, {height, width}, as torchvision computes it;
/// `antialias` is for bilinear and bicubic.
at::Tensor resized(const at::Tensor& images, std::array<int64_t, 2> size, const std::string& interpolation,
                   bool antialias);

}  // namespace trainrun
