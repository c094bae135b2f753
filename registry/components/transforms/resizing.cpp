#include "registry/components/transforms/resizing.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>

namespace trainrun {

at::Tensor resized(const at::Tensor& images, std::array<int64_t, 2> size, const std::string& interpolation,
                   bool antialias) {
  if (interpolation == "nearest") return at::upsample_nearest2d(images, size);
  if (interpolation == "nearest-exact") return at::_upsample_nearest_exact2d(images, size);
  if (interpolation == "bilinear") {
    return antialias ? at::_upsample_bilinear2d_aa(images, size, false) : at::upsample_bilinear2d(images, size, false);
  }
  return antialias ? at::_upsample_bicubic2d_aa(images, size, false) : at::upsample_bicubic2d(images, size, false);
}

}  // namespace trainrun
