#include "registry/components/transforms/padding.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "registry/kinds/layer_shapes.h"

namespace trainrun {
namespace {

/// How many pixels a mirror of `size` pixels can show.
int64_t reach(int64_t size, PaddingMode mode) {
  return mode == PaddingMode::kReflect ? size - 1 : mode == PaddingMode::kSymmetric ? size : INT64_MAX;
}

std::string beyond_reach(int64_t added, int64_t size, PaddingMode mode, const std::string& what) {
  return "padding_mode " + std::string(word_of(mode)) + " can add " + std::to_string(reach(size, mode)) +
         " pixels to " + what + ", not " + std::to_string(added);
}

/// Which of `size` pixels each one of the padded row shows.
at::Tensor shown_pixels(int64_t size, int64_t before, int64_t after, PaddingMode mode) {
  const int64_t added = std::max(before, after);
  if (added > reach(size, mode)) {
    throw LayerError(beyond_reach(added, size, mode, "an image with a side of " + std::to_string(size)));
  }
  const int64_t mirror = mode == PaddingMode::kReflect ? 1 : 0;  // where the last pixel is not shown twice
  std::vector<int64_t> places;
  for (int64_t i = -before; i < size + after; ++i) {
    if (mode == PaddingMode::kEdge) {
      places.push_back(std::clamp<int64_t>(i, 0, size - 1));
    } else {
      places.push_back(i < 0 ? -i - 1 + mirror : i >= size ? 2 * size - 1 - mirror - i : i);
    }
  }
  return at::tensor(places, at::kLong);
}

}  // namespace

void require_reach(const FieldInfo& images, const Sides& sides, PaddingMode mode, const std::string& transform) {
  const auto require = [&](int64_t added, int64_t size) {
    if (size == kAnySize || added <= reach(size, mode)) return;
    const std::string what = "'" + images.name + "' " + batch_text(images.shape);
    throw LayerError(transform + ": " + beyond_reach(added, size, mode, what));
  };
  require(std::max(sides.top, sides.bottom), images.shape[1]);
  require(std::max(sides.left, sides.right), images.shape[2]);
}

at::Tensor padded(const at::Tensor& images, const Sides& s, PaddingMode mode, double fill) {
  if (mode == PaddingMode::kConstant) {
    return at::constant_pad_nd(images, {s.left, s.right, s.top, s.bottom}, fill);
  }
  return images.index_select(2, shown_pixels(images.size(2), s.top, s.bottom, mode))
      .index_select(3, shown_pixels(images.size(3), s.left, s.right, mode));
}

}  // namespace trainrun
