#include "registry/components/transforms/color.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trainrun {

namespace {

bool is_float(const at::Tensor& images) { return images.is_floating_point(); }
at::Tensor to_floats(const at::Tensor& images) { return is_float(images) ? images : images.to(at::kFloat); }

/// [N, 1, H, W], floating point.
at::Tensor luminance(const at::Tensor& images) {
  const auto channel = [&](int64_t c) { return images.narrow(1, c, 1); };
  return channel(0).mul(0.2989).add_(channel(1), 0.587).add_(channel(2), 0.114);
}

/// For bytes: whole numbers.
at::Tensor whole_luminance(const at::Tensor& images) {
  const at::Tensor gray = luminance(images);
  return is_float(images) ? gray : gray.floor();
}

at::Tensor blended(const at::Tensor& images, const at::Tensor& others, double ratio) {
  return images.mul(ratio).add_(others, 1 - ratio).clamp_(0, bound_of(images)).to(images.scalar_type());
}

/// Each channel [N, C, H, W] filtered with `kernel` [h, w]: [N, C, H - h + 1, W - w + 1].
at::Tensor filtered(const at::Tensor& floats, const at::Tensor& kernel) {
  const int64_t channels = floats.size(1);
  const at::Tensor weight = kernel.to(floats.scalar_type()).expand({channels, 1, -1, -1});
  return at::conv2d(floats, weight, {}, 1, at::IntArrayRef{0}, 1, channels);
}

/// torchvision's _get_gaussian_kernel1d: [size].
at::Tensor gaussian(int64_t size, double sigma) {
  const double limit = static_cast<double>(size - 1) / (2 * std::sqrt(2.0));
  return at::softmax(at::linspace(-limit, limit, size).div(sigma).pow(2).neg(), 0);
}

/// What `equalize` makes of each value in a picture: the values of `histogram` spread by how many pixels lie below.
/// False: there are too few pixels to do so.
bool equalizing_table(const std::array<int64_t, 256>& histogram, int64_t pixels, std::array<uint8_t, 256>& table) {
  constexpr int64_t kMost = 255;
  const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](int64_t count) { return count > 0; });
  const int64_t step = (pixels - *last) / kMost;
  if (step == 0) return false;
  int64_t below = 0;
  for (size_t value = 0; value < table.size(); ++value) {
    table[value] = static_cast<uint8_t>(std::min((below + step / 2) / step, kMost));
    below += histogram[value];
  }
  return true;
}

void equalize_plane(uint8_t* pixels, int64_t count) {
  std::array<int64_t, 256> histogram{};
  for (int64_t i = 0; i < count; ++i) ++histogram[pixels[i]];
  std::array<uint8_t, 256> table{};
  if (!equalizing_table(histogram, count, table)) return;
  for (int64_t i = 0; i < count; ++i) pixels[i] = table[pixels[i]];
}

/// Between floating point in [0, 1] and bytes, as torchvision's to_dtype(scale=True).
at::Tensor scaled_to_floats(const at::Tensor& bytes) { return bytes.to(at::kFloat).mul_(1.0 / 255); }
at::Tensor scaled_to_bytes(const at::Tensor& floats) { return floats.mul(255 + 1.0 - 1e-3).to(at::kByte); }

}  // namespace

double bound_of(const at::Tensor& images) { return is_float(images) ? 1 : 255; }

at::Tensor grayscale(const at::Tensor& images) {
  if (images.size(1) == 1) return images;
  return luminance(images).to(images.scalar_type()).expand(images.sizes());
}

at::Tensor adjust_brightness(const at::Tensor& images, double factor) {
  return images.mul(factor).clamp_(0, bound_of(images)).to(images.scalar_type());
}

at::Tensor adjust_contrast(const at::Tensor& images, double factor) {
  const at::Tensor gray = images.size(1) == 3 ? whole_luminance(images) : to_floats(images);
  return blended(images, gray.mean({1, 2, 3}, true), factor);
}

at::Tensor adjust_saturation(const at::Tensor& images, double factor) {
  if (images.size(1) == 1) return images;
  return blended(images, whole_luminance(images), factor);
}

at::Tensor adjust_sharpness(const at::Tensor& images, double factor) {
  const int64_t height = images.size(2);
  const int64_t width = images.size(3);
  if (height <= 2 || width <= 2) return images;
  constexpr double kEdge = 1.0 / 13;
  constexpr double kMiddle = 5.0 / 13;
  const at::Tensor kernel =
      at::tensor({kEdge, kEdge, kEdge, kEdge, kMiddle, kEdge, kEdge, kEdge, kEdge}, at::kDouble).to(at::kFloat);
  at::Tensor result = images.to(to_floats(images).scalar_type(), false, true);
  at::Tensor blurred = filtered(result, kernel.view({3, 3}));
  if (!is_float(images)) blurred.round_();
  at::Tensor inner = result.narrow(2, 1, height - 2).narrow(3, 1, width - 2);
  inner.add_(blurred.sub_(inner), 1 - factor);
  return result.clamp_(0, bound_of(images)).to(images.scalar_type());
}

at::Tensor posterize(const at::Tensor& images, int64_t bits) {
  constexpr int64_t kBits = 8;
  const int64_t levels = int64_t{1} << bits;
  if (is_float(images)) {
    return images.mul(levels).floor_().clamp_(0, levels - 1).mul_(1.0 / static_cast<double>(levels));
  }
  if (bits >= kBits) return images;
  return images.bitwise_and((levels - 1) << (kBits - bits));
}

at::Tensor solarize(const at::Tensor& images, double threshold) {
  return at::where(images >= threshold, invert(images), images);
}

at::Tensor autocontrast(const at::Tensor& images) {
  const double bound = bound_of(images);
  const at::Tensor floats = to_floats(images);
  const at::Tensor least = floats.amin({2, 3}, true);
  const at::Tensor most = floats.amax({2, 3}, true);
  const at::Tensor is_flat = most == least;
  const at::Tensor scale = most.sub(least).mul_(1.0 / bound).masked_fill_(is_flat, 1);
  return floats.sub(least.masked_fill(is_flat, 0)).div_(scale).clamp_(0, bound).to(images.scalar_type());
}

at::Tensor equalize(const at::Tensor& images) {
  if (is_float(images)) return scaled_to_floats(equalize(scaled_to_bytes(images))).to(images.scalar_type());
  at::Tensor result = images.clone(at::MemoryFormat::Contiguous);
  const int64_t plane = images.size(2) * images.size(3);
  auto* pixels = result.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < images.size(0) * images.size(1); ++i) equalize_plane(pixels + i * plane, plane);
  return result;
}

at::Tensor invert(const at::Tensor& images) { return is_float(images) ? 1 - images : images.bitwise_not(); }

at::Tensor gaussian_blur(const at::Tensor& images, int64_t width, int64_t height, double sigma) {
  const at::Tensor kernel = gaussian(height, sigma).unsqueeze(1) * gaussian(width, sigma);
  const at::Tensor padded = at::reflection_pad2d(to_floats(images), {width / 2, width / 2, height / 2, height / 2});
  const at::Tensor result = filtered(padded, kernel);
  return is_float(images) ? result : result.round().to(at::kByte);
}

}  // namespace trainrun
