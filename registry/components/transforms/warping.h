#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "registry/components/transforms/fields.h"

namespace trainrun {

/// How a new pixel is computed from the old ones around the place that it comes from.
enum class Sampling { kNearest, kBilinear };
template <>
struct Words<Sampling> {
  static constexpr std::array kWords = {"nearest", "bilinear"};
};

/// The value of what comes in from outside an image: one number, or one for each channel.
using Fill = std::variant<double, std::vector<double>>;
std::vector<double> numbers_of(const Fill& fill);
/// Throws LayerError if `fill` has neither one number nor one for each channel of `images`.
void check_fill(const Fill& fill, const FieldInfo& images, const std::string& transform);

/// A change of places in an image, by torchvision's words: it is sheared, scaled and turned clockwise around its
/// centre, then moved.
struct Affine {
  double angle = 0;                      // degrees
  std::array<double, 2> translate = {};  // pixels: to the right, down
  double scale = 1;
  std::array<double, 2> shear = {};                  // degrees: along x, along y
  std::optional<std::array<double, 2>> center = {};  // x, y from the upper left; the image's own by default
};

/// Where, in an image of this size, each pixel comes from: [N, height, width, 2] float32, the image reaching from -1 to
/// 1, for grid_sampler. `affine_grid` has a row for each change; `perspective_grid` one, for the coefficients
/// [a … h] of (ax + by + c, dx + ey + f) / (gx + hy + 1).
at::Tensor affine_grid(const std::vector<Affine>& changes, int64_t height, int64_t width);
at::Tensor perspective_grid(const std::array<double, 8>& coefficients, int64_t height, int64_t width);

/// The images [N, C, H, W], bytes or floating point, sampled at the places of `grid`. What lies outside is `fill`;
/// nothing: 0, which the pixels at the edge fade to (torchvision's `fill=None`).
at::Tensor sampled(const at::Tensor& images, const at::Tensor& grid, Sampling sampling,
                   const std::optional<Fill>& fill);

/// By torchvision's `rotate`: counter-clockwise, around the centre.
Affine turned_by(double angle);

}  // namespace trainrun
