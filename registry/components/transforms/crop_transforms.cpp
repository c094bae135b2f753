#include <ATen/ops/empty.h>

#include <cmath>
#include <utility>

#include "registry/components/transforms/drawing.h"
#include "registry/components/transforms/fields.h"
#include "registry/components/transforms/resizing.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

struct Window {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }  // halves to even, as in Python

struct RandomResizedCrop {
  Pair size;
  Bounds scale = {0.08, 1.0};
  Bounds ratio = {3.0 / 4.0, 4.0 / 3.0};
  std::string interpolation = "bilinear";
  bool antialias = true;
  std::string field = "image";

  static void describe(Fields<RandomResizedCrop>& f) {
    f.required("size", &RandomResizedCrop::size).at_least(1).unit("pixels").doc("height and width of the result");
    f.optional("scale", &RandomResizedCrop::scale)
        .greater_than(0)
        .doc("the window's share of the image's area is drawn from [least, most]");
    f.optional("ratio", &RandomResizedCrop::ratio)
        .greater_than(0)
        .doc("the window's width, divided by its height, is drawn from [least, most], evenly by its logarithm");
    f.optional("interpolation", &RandomResizedCrop::interpolation)
        .one_of({kInterpolations.begin(), kInterpolations.end()})
        .doc("how new pixels are computed from old ones");
    f.optional("antialias", &RandomResizedCrop::antialias)
        .doc("average what falls on one pixel when an image is made smaller; for bilinear and bicubic");
    f.optional("field", &RandomResizedCrop::field).doc("the field of the batch to change");
  }
  void check(Checker& checker) const {
    if (scale[0] > scale[1]) checker.fail("scale", "the smaller number comes first");
    if (ratio[0] > ratio[1]) checker.fail("ratio", "the smaller number comes first");
  }
  void change(DatasetInfo& info) const {
    FieldInfo& images = pixel_field(info, field, "RandomResizedCrop");
    images.shape = {images.shape[0], size[0], size[1]};
  }
  /// As torchvision draws it: ten tries, then the largest window in the middle whose ratio is allowed.
  Window draw(int64_t height, int64_t width, RandomStream random) const {
    constexpr int kTries = 10;
    const auto area = static_cast<double>(height * width);
    for (int i = 0; i < kTries; ++i) {
      const auto [w, h] = draw_sides(area, scale, ratio, random);
      if (w <= 0 || w > width || h <= 0 || h > height) continue;
      const int64_t top = random.integer(height - h + 1);
      return {top, random.integer(width - w + 1), h, w};
    }
    Window window{0, 0, height, width};
    const double own = static_cast<double>(width) / static_cast<double>(height);
    if (own < ratio[0]) window.height = rounded(static_cast<double>(width) / ratio[0]);
    if (own > ratio[1]) window.width = rounded(static_cast<double>(height) * ratio[1]);
    window.top = (height - window.height) / 2;
    window.left = (width - window.width) / 2;
    return window;
  }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    at::Tensor result = at::empty({images.size(0), images.size(1), size[0], size[1]},
                                  images.options().memory_format(images.suggest_memory_format()));
    for (int64_t i = 0; i < images.size(0); ++i) {
      const Window window = draw(images.size(2), images.size(3), draws.of(i));
      const at::Tensor part =
          images.narrow(0, i, 1).narrow(2, window.top, window.height).narrow(3, window.left, window.width);
      result.narrow(0, i, 1).copy_(resized(part, size, interpolation, antialias));
    }
    images = std::move(result);
  }
  std::optional<RandomResizedCrop> for_masks(double) const {
    RandomResizedCrop masks = *this;
    masks.interpolation = "nearest";
    return masks;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_crop_transforms(TransformRegistry& transforms) {
  transforms.add<RandomResizedCrop>(
      "RandomResizedCrop", "a window of random position, size and aspect ratio, drawn for each image and resized");
}

}  // namespace trainrun
