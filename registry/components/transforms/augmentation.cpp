#include "registry/components/transforms/augmentation.h"

#include <ATen/ops/linspace.h>

#include <cmath>
#include <numbers>

#include "registry/components/transforms/color.h"

namespace trainrun {

namespace {

using Kind = Augmentation;

at::Tensor warped(const at::Tensor& image, const Affine& change, const AugmentationPixels& pixels) {
  return sampled(image, affine_grid({change}, image.size(2), image.size(3)), pixels.interpolation, pixels.fill);
}

/// A shear by `magnitude` pixels a pixel, along axis 0 or 1 (x or y), which leaves the upper left corner where it is.
at::Tensor sheared(const at::Tensor& image, size_t axis, double magnitude, const AugmentationPixels& pixels) {
  Affine change;
  change.shear[axis] = std::atan(magnitude) * (180 / std::numbers::pi);
  change.center = {0, 0};
  return warped(image, change, pixels);
}

at::Tensor moved(const at::Tensor& image, size_t axis, double magnitude, const AugmentationPixels& pixels) {
  Affine change;
  change.translate[axis] = std::trunc(magnitude);
  return warped(image, change, pixels);
}

constexpr auto kOfShear = [](double, double) { return 0.3; };
constexpr auto kOfAngle = [](double, double) { return 30.0; };
constexpr auto kOfColor = [](double, double) { return 0.9; };
constexpr auto kWideShear = [](double, double) { return 0.99; };
constexpr auto kWideAngle = [](double, double) { return 135.0; };
constexpr auto kWidePixels = [](double, double) { return 32.0; };
constexpr auto kShareOfWidth = [](double, double width) { return 150.0 / 331.0 * width; };
constexpr auto kShareOfHeight = [](double height, double) { return 150.0 / 331.0 * height; };
constexpr auto kThirdOfWidth = [](double, double width) { return width / 3.0; };
constexpr auto kThirdOfHeight = [](double height, double) { return height / 3.0; };

AugmentationChoice rising(Kind kind, Magnitudes::Strongest strongest) {
  return {kind, {Magnitudes::Scale::kRising, strongest}};
}
AugmentationChoice bits(int64_t most, int64_t fewest) {
  return {Kind::kPosterize, {Magnitudes::Scale::kBits, nullptr, most, fewest}};
}
AugmentationChoice solarizing() { return {Kind::kSolarize, {Magnitudes::Scale::kFalling}}; }
AugmentationChoice plain(Kind kind) { return {kind, {}}; }

/// What all spaces begin with, Identity aside.
AugmentationSpace warps(Magnitudes::Strongest shear, Magnitudes::Strongest x, Magnitudes::Strongest y,
                        Magnitudes::Strongest angle) {
  return {rising(Kind::kShearX, shear), rising(Kind::kShearY, shear), rising(Kind::kTranslateX, x),
          rising(Kind::kTranslateY, y), rising(Kind::kRotate, angle)};
}
AugmentationSpace colors(Magnitudes::Strongest strongest) {
  return {rising(Kind::kBrightness, strongest), rising(Kind::kColor, strongest), rising(Kind::kContrast, strongest),
          rising(Kind::kSharpness, strongest)};
}

AugmentationSpace joined(const std::vector<AugmentationSpace>& parts) {
  AugmentationSpace all;
  for (const AugmentationSpace& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

at::Tensor augmented(const at::Tensor& image, Augmentation augmentation, double magnitude,
                     const AugmentationPixels& pixels) {
  switch (augmentation) {
    case Kind::kIdentity:
      return image;
    case Kind::kShearX:
      return sheared(image, 0, magnitude, pixels);
    case Kind::kShearY:
      return sheared(image, 1, magnitude, pixels);
    case Kind::kTranslateX:
      return moved(image, 0, magnitude, pixels);
    case Kind::kTranslateY:
      return moved(image, 1, magnitude, pixels);
    case Kind::kRotate:
      return warped(image, turned_by(magnitude), pixels);
    case Kind::kBrightness:
      return adjust_brightness(image, 1 + magnitude);
    case Kind::kColor:
      return adjust_saturation(image, 1 + magnitude);
    case Kind::kContrast:
      return adjust_contrast(image, 1 + magnitude);
    case Kind::kSharpness:
      return adjust_sharpness(image, 1 + magnitude);
    case Kind::kPosterize:
      return posterize(image, static_cast<int64_t>(magnitude));
    case Kind::kSolarize:
      return solarize(image, bound_of(image) * magnitude);
    case Kind::kAutoContrast:
      return autocontrast(image);
    case Kind::kEqualize:
      return equalize(image);
    case Kind::kInvert:
      return invert(image);
  }
  throw Error("an augmentation without a number");
}

double Magnitudes::at(int64_t bin, int64_t num_bins, const at::Tensor& image) const {
  const auto of_range = [&](double first, double last) {
    return at::linspace(first, last, num_bins)[bin].item<float>();
  };
  switch (scale) {
    case Scale::kNone:
      return 0;
    case Scale::kRising:
      return of_range(0, strongest(static_cast<double>(image.size(2)), static_cast<double>(image.size(3))));
    case Scale::kFalling:
      return of_range(1, 0);
    case Scale::kBits: {
      const auto bins_a_bit =
          static_cast<float>(static_cast<double>(num_bins - 1) / static_cast<double>(bits - fewest_bits));
      return std::nearbyint(static_cast<float>(bits) - static_cast<float>(bin) / bins_a_bit);
    }
  }
  throw Error("magnitudes without a scale");
}

double draw_signed(const Magnitudes& magnitudes, int64_t bin, int64_t num_bins, const at::Tensor& image,
                   RandomStream& random) {
  constexpr double kHalf = 0.5;
  const double magnitude = magnitudes.at(bin, num_bins, image);
  return magnitudes.is_signed() && random.uniform() <= kHalf ? -magnitude : magnitude;
}

const AugmentationSpace& auto_augment_space() {
  static const AugmentationSpace space =
      joined({warps(kOfShear, kShareOfWidth, kShareOfHeight, kOfAngle),
              colors(kOfColor),
              {bits(8, 4), solarizing(), plain(Kind::kAutoContrast), plain(Kind::kEqualize), plain(Kind::kInvert)}});
  return space;
}

const AugmentationSpace& rand_augment_space() {
  static const AugmentationSpace space =
      joined({{plain(Kind::kIdentity)},
              warps(kOfShear, kShareOfWidth, kShareOfHeight, kOfAngle),
              colors(kOfColor),
              {bits(8, 4), solarizing(), plain(Kind::kAutoContrast), plain(Kind::kEqualize)}});
  return space;
}

const AugmentationSpace& trivial_augment_wide_space() {
  static const AugmentationSpace space =
      joined({{plain(Kind::kIdentity)},
              warps(kWideShear, kWidePixels, kWidePixels, kWideAngle),
              colors(kWideShear),
              {bits(8, 2), solarizing(), plain(Kind::kAutoContrast), plain(Kind::kEqualize)}});
  return space;
}

const AugmentationSpace& aug_mix_space(bool all_ops) {
  static const AugmentationSpace without_colors =
      joined({warps(kOfShear, kThirdOfWidth, kThirdOfHeight, kOfAngle),
              {bits(4, 0), solarizing(), plain(Kind::kAutoContrast), plain(Kind::kEqualize)}});
  static const AugmentationSpace all = joined({without_colors, colors(kOfColor)});
  return all_ops ? all : without_colors;
}

}  // namespace trainrun
