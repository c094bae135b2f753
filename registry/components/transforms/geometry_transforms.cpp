#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <cmath>

#include "registry/components/transforms/padding.h"
#include "registry/components/transforms/resizing.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/kinds/transform.h"

namespace trainrun {

namespace {

using Size = std::array<int64_t, 2>;  // height, width

std::string size_text(int64_t height, int64_t width) { return std::to_string(height) + "x" + std::to_string(width); }

struct Pad {
  std::variant<int64_t, std::array<int64_t, 2>, std::array<int64_t, 4>> padding;
  double fill = 0;
  PaddingMode padding_mode = PaddingMode::kConstant;
  std::string field = "image";

  static void describe(Fields<Pad>& f) {
    f.required("padding", &Pad::padding)
        .at_least(0)
        .unit("pixels")
        .doc("at all sides; or [left and right, top and bottom]; or [left, top, right, bottom]");
    f.optional("fill", &Pad::fill).doc("value of what is added, in mode constant");
    f.optional("padding_mode", &Pad::padding_mode).doc(kPaddingModeDoc);
    f.optional("field", &Pad::field).doc("the field of the batch to change");
  }
  Sides sides() const {
    if (const auto* all = std::get_if<int64_t>(&padding)) return {*all, *all, *all, *all};
    if (const auto* two = std::get_if<1>(&padding)) return {(*two)[0], (*two)[1], (*two)[0], (*two)[1]};
    const auto& four = std::get<2>(padding);
    return {four[0], four[1], four[2], four[3]};
  }

  void change(DatasetInfo& info) const {
    FieldInfo& images = image_field(info, field, "Pad");
    const Sides s = sides();
    require_reach(images, s, padding_mode, "Pad");
    if (images.shape[1] != kAnySize) images.shape[1] += s.top + s.bottom;
    if (images.shape[2] != kAnySize) images.shape[2] += s.left + s.right;
  }
  Values values() const {
    return fill == 0 || padding_mode != PaddingMode::kConstant ? Values::kMoved : Values::kChanged;
  }
  void apply(Batch& batch, const SampleDraws&) const {
    at::Tensor& images = batch.at(field);
    images = padded(images, sides(), padding_mode, fill);
  }
  std::optional<Pad> for_masks(double outside) const {
    Pad masks = *this;
    masks.fill = outside;
    return masks;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct CenterCrop {
  Pair size;
  std::string field = "image";

  static void describe(Fields<CenterCrop>& f) {
    f.required("size", &CenterCrop::size)
        .at_least(1)
        .doc("height and width of the part that is kept; zeros beyond the image");
    f.optional("field", &CenterCrop::field).doc("the field of the batch to change");
  }
  void change(DatasetInfo& info) const {
    FieldInfo& images = image_field(info, field, "CenterCrop");
    images.shape = {images.shape[0], size[0], size[1]};
  }
  /// Pixels to add before and after so that `have` becomes `want`; torchvision rounds halves so.
  static std::array<int64_t, 2> added(int64_t have, int64_t want) {
    if (want > have) return {(want - have) / 2, (want - have + 1) / 2};
    const auto before = static_cast<int64_t>(std::nearbyint(static_cast<double>(have - want) / 2));  // half to even
    return {-before, want - have + before};
  }
  Values values() const { return fill_ == 0 ? Values::kMoved : Values::kChanged; }
  void apply(Batch& batch, const SampleDraws&) const {
    at::Tensor& images = batch.at(field);
    const auto [top, bottom] = added(images.size(2), size[0]);
    const auto [left, right] = added(images.size(3), size[1]);
    images = at::constant_pad_nd(images, {left, right, top, bottom}, fill_);
  }
  std::optional<CenterCrop> for_masks(double outside) const {
    CenterCrop masks = *this;
    masks.fill_ = outside;
    return masks;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }

 private:
  double fill_ = 0;  // beyond the image
};

struct Resize {
  std::variant<int64_t, Size> size;
  std::string interpolation = "bilinear";
  std::optional<int64_t> max_size;
  bool antialias = true;
  std::string field = "image";

  static void describe(Fields<Resize>& f) {
    f.required("size", &Resize::size)
        .at_least(1)
        .unit("pixels")
        .doc("[height, width]; or the length of the shorter side");
    f.optional("interpolation", &Resize::interpolation)
        .one_of({kInterpolations.begin(), kInterpolations.end()})
        .doc("how new pixels are computed from old ones");
    f.optional("max_size", &Resize::max_size)
        .at_least(1)
        .unit("pixels")
        .doc("maximum length of the longer side, if size is the length of the shorter");
    f.optional("antialias", &Resize::antialias)
        .doc("average what falls on one pixel when an image is made smaller; for bilinear and bicubic");
    f.optional("field", &Resize::field).doc("the field of the batch to change");
  }
  void check(Checker& checker) const {
    if (!max_size) return;
    const auto* shorter = std::get_if<int64_t>(&size);
    if (!shorter) checker.fail("max_size", "is for a size that is one number");
    if (shorter && *max_size <= *shorter) checker.fail("max_size", "must be greater than size");
  }
  /// As torchvision computes it, halves and all.
  Size size_of(int64_t height, int64_t width) const {
    if (const auto* both = std::get_if<Size>(&size)) return *both;
    int64_t shorter = std::get<int64_t>(size);
    auto longer = static_cast<int64_t>(static_cast<double>(shorter * std::max(height, width)) /
                                       static_cast<double>(std::min(height, width)));
    if (max_size && longer > *max_size) {
      shorter = static_cast<int64_t>(static_cast<double>(*max_size * shorter) / static_cast<double>(longer));
      longer = *max_size;
    }
    return width <= height ? Size{longer, shorter} : Size{shorter, longer};
  }
  void change(DatasetInfo& info) const {
    FieldInfo& images = pixel_field(info, field, "Resize");
    if (!std::holds_alternative<Size>(size) && has_any_size(images)) return;
    const Size result = size_of(images.shape[1], images.shape[2]);
    if (result[0] < 1 || result[1] < 1) {
      throw LayerError("Resize: nothing would be left of '" + field + "' " + batch_text(images.shape) + ": " +
                       size_text(result[0], result[1]));
    }
    images.shape = {images.shape[0], result[0], result[1]};
  }
  void apply(Batch& batch, const SampleDraws&) const {
    at::Tensor& images = batch.at(field);
    const Size target = size_of(images.size(2), images.size(3));
    images = resized(images, target, interpolation, antialias);
  }
  std::optional<Resize> for_masks(double) const {
    Resize masks = *this;
    masks.interpolation = "nearest";
    return masks;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_geometry_transforms(TransformRegistry& transforms) {
  transforms.add<Pad>("Pad", "adds a border to each image");
  transforms.add<CenterCrop>("CenterCrop", "the middle of each image");
  transforms.add<Resize>("Resize", "resizes each image");
}

}  // namespace trainrun
