#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "registry/components/transforms/warping.h"
#include "registry/kinds/sample_draws.h"

namespace trainrun {

/// What AutoAugment and its like choose from.
enum class Augmentation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert
};

/// How pixels that move are computed, and what comes in from outside; nothing: what torchvision's `fill=None` does.
struct AugmentationPixels {
  Sampling interpolation = Sampling::kNearest;
  std::optional<Fill> fill;
};

/// One image [1, C, H, W] changed by the augmentation; torchvision's _apply_image_or_video_transform.
at::Tensor augmented(const at::Tensor& image, Augmentation augmentation, double magnitude,
                     const AugmentationPixels& pixels);

/// How strong an augmentation can be in one of torchvision's augmentation spaces, from weakest to strongest.
struct Magnitudes {
  enum class Scale { kNone, kRising, kFalling, kBits };
  using Strongest = double (*)(double height, double width);

  Scale scale = Scale::kNone;
  Strongest strongest = nullptr;  // kRising: from 0 to this, either way; kFalling: from 1 to 0
  int64_t bits = 0;               // kBits: kept of each number, from this …
  int64_t fewest_bits = 0;        // … to this
  /// Number `bin` of `num_bins`, from 0; without its sign.
  double at(int64_t bin, int64_t num_bins, const at::Tensor& image) const;
  bool has_bins() const { return scale != Scale::kNone; }
  bool is_signed() const { return scale == Scale::kRising; }
};

struct AugmentationChoice {
  Augmentation augmentation;
  Magnitudes magnitudes;
};
using AugmentationSpace = std::vector<AugmentationChoice>;

/// Those of torchvision's classes, in their order.
const AugmentationSpace& auto_augment_space();
const AugmentationSpace& rand_augment_space();
const AugmentationSpace& trivial_augment_wide_space();
const AugmentationSpace& aug_mix_space(bool all_ops);

/// The magnitude in bin `bin` of `num_bins`, with the sign that is drawn for those that go either way.
double draw_signed(const Magnitudes& magnitudes, int64_t bin, int64_t num_bins, const at::Tensor& image,
                   RandomStream& random);

}  // namespace trainrun
