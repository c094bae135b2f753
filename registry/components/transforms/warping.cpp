#include "registry/components/transforms/warping.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <numbers>

#include "registry/kinds/layer.h"

namespace trainrun {

namespace {

at::Tensor floats(const std::vector<double>& numbers) { return at::tensor(numbers, at::kDouble).to(at::kFloat); }

/// (x, y, 1) of each pixel: [1, height * width, 3]; the first of each row and column at `x` and `y`.
at::Tensor places(int64_t height, int64_t width, double x, double y) {
  at::Tensor base = at::empty({height, width, 3});
  base.select(2, 0).copy_(at::linspace(x, x + static_cast<double>(width - 1), width));
  base.select(2, 1).copy_(at::linspace(y, y + static_cast<double>(height - 1), height).unsqueeze(1));
  base.select(2, 2).fill_(1);
  return base.view({1, height * width, 3});
}

/// Half an image's width and height, which its places are divided by to reach from -1 to 1.
at::Tensor halves(int64_t height, int64_t width) {
  return floats({0.5 * static_cast<double>(width), 0.5 * static_cast<double>(height)});
}

/// torchvision's _get_inverse_affine_matrix: [a, b, c, d, e, f] of (ax + by + c, dx + ey + f), from the place of a
/// pixel in the result, counted from the image's centre, to where it comes from.
std::array<double, 6> inverse_matrix(const Affine& change, double height, double width) {
  constexpr double kRadians = std::numbers::pi / 180;
  const double rotation = change.angle * kRadians;
  const double shear_x = change.shear[0] * kRadians;
  const double shear_y = change.shear[1] * kRadians;
  const double cx = change.center ? (*change.center)[0] - width * 0.5 : 0;
  const double cy = change.center ? (*change.center)[1] - height * 0.5 : 0;
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b = -(a * std::tan(shear_x) + std::sin(rotation));
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d = std::cos(rotation) - c * std::tan(shear_x);
  std::array<double, 6> m = {d / change.scale, -b / change.scale, 0, -c / change.scale, a / change.scale, 0};
  const double x = cx + change.translate[0];
  const double y = cy + change.translate[1];
  m[2] += cx - m[0] * x - m[1] * y;
  m[5] += cy - m[3] * x - m[4] * y;
  return m;
}

}  // namespace

std::vector<double> numbers_of(const Fill& fill) {
  if (const auto* one = std::get_if<double>(&fill)) return {*one};
  return std::get<std::vector<double>>(fill);
}

void check_fill(const Fill& fill, const FieldInfo& images, const std::string& transform) {
  const size_t count = numbers_of(fill).size();
  if (count == 1 || static_cast<int64_t>(count) == images.shape[0]) return;
  throw LayerError(transform + ": fill has " + std::to_string(count) + " numbers, but '" + images.name + "' " +
                   batch_text(images.shape) + " has " + std::to_string(images.shape[0]) + " channels");
}

at::Tensor affine_grid(const std::vector<Affine>& changes, int64_t height, int64_t width) {
  std::vector<double> rows;  // of each matrix
  for (const Affine& change : changes) {
    const auto matrix = inverse_matrix(change, static_cast<double>(height), static_cast<double>(width));
    rows.insert(rows.end(), matrix.begin(), matrix.end());
  }
  const auto n = static_cast<int64_t>(changes.size());
  const at::Tensor scaled = floats(rows).view({n, 2, 3}).transpose(1, 2) / halves(height, width);
  const at::Tensor base = places(height, width, static_cast<double>(1 - width) * 0.5,
                                 static_cast<double>(1 - height) * 0.5);  // counted from the centre
  return at::bmm(base.expand({n, -1, -1}), scaled).view({n, height, width, 2});
}

at::Tensor perspective_grid(const std::array<double, 8>& coefficients, int64_t height, int64_t width) {
  const auto& k = coefficients;
  const at::Tensor above = floats({k[0], k[1], k[2], k[3], k[4], k[5]}).view({1, 2, 3}).transpose(1, 2);
  const at::Tensor below = floats({k[6], k[7], 1, k[6], k[7], 1}).view({1, 2, 3}).transpose(1, 2);
  const at::Tensor base = places(height, width, 0.5, 0.5);
  return at::bmm(base, above / halves(height, width)).div_(at::bmm(base, below)).sub_(1).view({1, height, width, 2});
}

/// What lies outside is marked by a channel of ones that is sampled along.
at::Tensor sampled(const at::Tensor& images, const at::Tensor& grid, Sampling sampling,
                   const std::optional<Fill>& fill) {
  constexpr int64_t kZeros = 0;  // padding mode of grid_sampler
  const int64_t mode = sampling == Sampling::kNearest ? 1 : 0;
  return as_floats(images, [&](const at::Tensor& pixels) {
    const at::Tensor places = grid.to(pixels.dtype());
    if (!fill) return at::grid_sampler_2d(pixels, places, mode, kZeros, false);
    const at::Tensor ones = at::ones({pixels.size(0), 1, pixels.size(2), pixels.size(3)}, pixels.options());
    const at::Tensor both = at::grid_sampler_2d(at::cat({pixels, ones}, 1), places, mode, kZeros, false);
    const at::Tensor result = both.narrow(1, 0, pixels.size(1));
    const at::Tensor inside = both.narrow(1, pixels.size(1), 1);
    const at::Tensor color = at::tensor(numbers_of(*fill), at::kDouble).to(pixels.dtype()).view({-1, 1, 1});
    if (sampling == Sampling::kNearest) return at::where(inside < 0.5, color, result);
    return result.sub(color).mul_(inside).add_(color);
  });
}

Affine turned_by(double angle) {
  constexpr double kWhole = 360;
  double within = std::fmod(angle, kWhole);
  if (within < 0) within += kWhole;
  Affine change;
  change.angle = -within;
  return change;
}

}  // namespace trainrun
