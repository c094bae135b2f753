#include "runner/data/picture.h"

#include <ATen/TensorOperators.h>

namespace trainrun {

at::Tensor picture_of(const at::Tensor& input) {
  if (input.dim() != 3 || input.numel() == 0 || input.size(1) < 2 || input.size(2) < 2) return {};
  constexpr double kMost = 255;
  at::Tensor pixels = input.size(0) == 3 ? input : input.narrow(0, 0, 1);
  pixels = pixels.to(at::kDouble).nan_to_num(0, 0, 0);
  if (pixels.min().item<double>() < 0 || pixels.max().item<double>() > 1) {
    const at::Tensor least = pixels.amin({1, 2}, true);
    pixels = (pixels - least) / (pixels.amax({1, 2}, true) - least).clamp_min(1e-12);
  }
  return (pixels * kMost).round().to(at::kByte).permute({1, 2, 0}).contiguous();
}

}  // namespace trainrun
