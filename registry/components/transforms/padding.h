#pragma once

#include <array>

#include "registry/components/transforms/fields.h"

namespace trainrun {

/// What is shown beyond an image's edge.
enum class PaddingMode { kConstant, kEdge, kReflect, kSymmetric };
template <>
struct Words<PaddingMode> {
  static constexpr std::array kWords = {"constant", "edge", "reflect", "symmetric"};
};
inline constexpr const char* kPaddingModeDoc =
    "what is added: fill; the last pixel; the image mirrored without, or with, its last pixel";

/// Pixels added at each side; fewer than none are taken away.
struct Sides {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
};

/// Throws LayerError, in the name of `transform`, where a mirror would show more than there is of `images`.
void require_reach(const FieldInfo& images, const Sides& sides, PaddingMode mode, const std::string& transform);

/// Images [N, C, H, W] with `sides` added.
at::Tensor padded(const at::Tensor& images, const Sides& sides, PaddingMode mode, double fill);

}  // namespace trainrun
