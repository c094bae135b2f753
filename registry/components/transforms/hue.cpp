#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "registry/components/transforms/color.h"

namespace trainrun {

namespace {

struct Hsv {
  at::Tensor h, s, v;  // [N, H, W], in [0, 1]
};

/// Source: torchvision's _rgb_to_hsv, after Pillow's Convert.c. Where a pixel is gray, its hue and saturation are 0.
Hsv to_hsv(const at::Tensor& images) {
  const at::Tensor r = images.select(1, 0);
  const at::Tensor g = images.select(1, 1);
  const auto [least, most] = at::aminmax(images, 1);
  const at::Tensor is_gray = most == least;
  const at::Tensor range = most - least;
  const at::Tensor ones = at::ones_like(most);
  const at::Tensor s = range / at::where(is_gray, ones, most);
  const at::Tensor divisor = at::where(is_gray, ones, range).unsqueeze(1);
  const at::Tensor distances = (most.unsqueeze(1) - images) / divisor;
  const at::Tensor rc = distances.select(1, 0);
  const at::Tensor gc = distances.select(1, 1);
  const at::Tensor bc = distances.select(1, 2);
  const at::Tensor is_red = most == r;
  const at::Tensor is_green = (most == g).logical_and_(is_red.logical_not());
  const at::Tensor is_blue = is_red.logical_or(most == g).logical_not();
  const at::Tensor hg = rc.add(2).sub_(bc).mul_(is_green);
  const at::Tensor hr = bc.sub(gc).mul_(is_red);
  const at::Tensor hb = gc.add(4).sub_(rc).mul_(is_blue);
  return {hr.add(hg).add_(hb).mul_(1.0 / 6).add_(1).fmod_(1), s, most};
}

/// Source: torchvision's _hsv_to_rgb.
at::Tensor to_rgb(const Hsv& image) {
  const at::Tensor h6 = image.h.mul(6);
  const at::Tensor sector = h6.floor();
  const at::Tensor part = image.s * (h6 - sector);
  const at::Tensor rest = 1 - image.s;
  const at::Tensor q = (1 - part).mul_(image.v).clamp_(0, 1);
  const at::Tensor t = part.add(rest).mul_(image.v).clamp_(0, 1);
  const at::Tensor p = rest.mul(image.v).clamp_(0, 1);
  // of v, p, q, t: which is red, green, blue, by the sector of the hue
  static const at::Tensor choices =
      at::tensor({0, 2, 1, 1, 3, 0, 3, 0, 0, 2, 1, 1, 1, 1, 3, 0, 0, 2}, at::kLong).view({3, 6});
  const at::Tensor chosen = choices.index_select(1, sector.to(at::kLong).remainder(6).flatten());
  std::vector<int64_t> sizes = image.h.sizes().vec();
  sizes.insert(sizes.begin(), 3);
  return at::stack({image.v, p, q, t}, 1).gather(1, chosen.view(sizes).movedim(0, 1));
}

}  // namespace

at::Tensor adjust_hue(const at::Tensor& images, double shift) {
  if (images.size(1) == 1) return images;
  const bool is_bytes = images.scalar_type() == at::kByte;
  const at::Tensor floats = is_bytes ? images.to(at::kFloat).mul_(1.0 / 255) : images.to(at::kFloat);
  Hsv image = to_hsv(floats);
  image.h = image.h.add(shift).remainder(1);
  const at::Tensor result = to_rgb(image);
  return is_bytes ? result.mul(255 + 1.0 - 1e-3).to(at::kByte) : result.to(images.scalar_type());
}

}  // namespace trainrun
