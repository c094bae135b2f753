#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <array>
#include <cmath>
#include <numbers>

#include "registry/catalog.h"
#include "registry/transforms/fields.h"
#include "registry/transforms/resizing.h"

namespace trainrun {

/// What is shown beyond an image's edge.
enum class PaddingMode { kConstant, kEdge, kReflect, kSymmetric };
template <>
struct Words<PaddingMode> {
  static constexpr std::array kWords = {"constant", "edge", "reflect", "symmetric"};
};

namespace {

using Size = std::array<int64_t, 2>;  // height, width

std::string size_text(int64_t height, int64_t width) { return std::to_string(height) + "x" + std::to_string(width); }

/// Pixels added at each side; fewer than none are taken away.
struct Sides {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
};

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
    f.optional("padding_mode", &Pad::padding_mode)
        .doc("what is added: fill; the last pixel; the image mirrored without, or with, its last pixel");
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
    check_reach(images, std::max(s.top, s.bottom), images.shape[1]);
    check_reach(images, std::max(s.left, s.right), images.shape[2]);
    if (images.shape[1] != kAnySize) images.shape[1] += s.top + s.bottom;
    if (images.shape[2] != kAnySize) images.shape[2] += s.left + s.right;
  }
  /// A mirror shows no more than there is.
  void check_reach(const FieldInfo& images, int64_t most, int64_t size) const {
    if (size == kAnySize) return;
    const bool reflects = padding_mode == PaddingMode::kReflect;
    const int64_t limit = reflects ? size - 1 : padding_mode == PaddingMode::kSymmetric ? size : INT64_MAX;
    if (most > limit) {
      throw LayerError("Pad: padding_mode " + word_of(padding_mode) + " can add " + std::to_string(limit) +
                       " pixels to '" + field + "' " + batch_text(images.shape) + ", not " + std::to_string(most));
    }
  }

  void apply(Batch& batch, const SampleDraws&) const {
    at::Tensor& images = batch.at(field);
    const Sides s = sides();
    if (padding_mode == PaddingMode::kConstant) {
      images = at::constant_pad_nd(images, {s.left, s.right, s.top, s.bottom}, fill);
    } else {
      images = images.index_select(2, sources(images.size(2), s.top, s.bottom))
                   .index_select(3, sources(images.size(3), s.left, s.right));
    }
  }
  /// Which of `size` pixels each one of the padded row shows.
  at::Tensor sources(int64_t size, int64_t before, int64_t after) const {
    const int64_t mirror = padding_mode == PaddingMode::kReflect ? 1 : 0;  // where the last pixel is not shown twice
    std::vector<int64_t> places;
    for (int64_t i = -before; i < size + after; ++i) {
      if (padding_mode == PaddingMode::kEdge) {
        places.push_back(std::clamp<int64_t>(i, 0, size - 1));
      } else {
        places.push_back(i < 0 ? -i - 1 + mirror : i >= size ? 2 * size - 1 - mirror - i : i);
      }
    }
    return at::tensor(places, at::kLong);
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
  void apply(Batch& batch, const SampleDraws&) const {
    at::Tensor& images = batch.at(field);
    const auto [top, bottom] = added(images.size(2), size[0]);
    const auto [left, right] = added(images.size(3), size[1]);
    images = at::constant_pad_nd(images, {left, right, top, bottom}, 0);
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct Resize {
  std::variant<int64_t, Size> size;
  std::string interpolation = "bilinear";
  std::optional<int64_t> max_size;
  bool antialias = true;
  std::string field = "image";

  static void describe(Fields<Resize>& f) {
    f.required("size", &Resize::size).at_least(1).unit("pixels").doc("[height, width]; or of the shorter side");
    f.optional("interpolation", &Resize::interpolation)
        .one_of({kInterpolations.begin(), kInterpolations.end()})
        .doc("how new pixels are computed from old ones");
    f.optional("max_size", &Resize::max_size)
        .at_least(1)
        .unit("pixels")
        .doc("greatest length of the longer side, if size is that of the shorter");
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
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct RandomRotation {
  std::variant<double, std::array<double, 2>> degrees;
  std::string interpolation = "nearest";
  std::optional<std::array<double, 2>> center;
  double fill = 0;
  std::string field = "image";

  static void describe(Fields<RandomRotation>& f) {
    f.required("degrees", &RandomRotation::degrees)
        .unit("degrees")
        .doc("angles are drawn from -degrees to degrees; or from [least, most]; counter-clockwise");
    f.optional("interpolation", &RandomRotation::interpolation)
        .one_of({"nearest", "bilinear"})
        .doc("how new pixels are computed from old ones");
    f.optional("center", &RandomRotation::center)
        .unit("pixels")
        .doc("[x, y] of the point to turn around, from the upper left; null: the image's centre");
    f.optional("fill", &RandomRotation::fill).doc("value of what comes in from outside the image");
    f.optional("field", &RandomRotation::field).doc("the field of the batch to change");
  }
  void check(Checker& checker) const {
    const auto [least, most] = range();
    if (least > most) {
      checker.fail("degrees",
                   std::holds_alternative<double>(degrees) ? "must be >= 0" : "the smaller number comes first");
    }
  }
  std::array<double, 2> range() const {
    if (const auto* one = std::get_if<double>(&degrees)) return {-*one, *one};
    return std::get<std::array<double, 2>>(degrees);
  }
  void change(DatasetInfo& info) const { pixel_field(info, field, "RandomRotation"); }

  /// For each pixel of the result, in [-1, 1], where it comes from: [N, H, W, 2]. Image i is turned by angles[i].
  at::Tensor grid(const at::Tensor& angles, int64_t height, int64_t width) const {
    const auto h = static_cast<double>(height);
    const auto w = static_cast<double>(width);
    const double x = center ? (*center)[0] - w * 0.5 : 0;
    const double y = center ? (*center)[1] - h * 0.5 : 0;
    std::vector<double> rows;  // of each image's matrix: source = matrix [3, 2] of (x, y, 1) of the result
    for (int64_t i = 0; i < angles.numel(); ++i) {
      const double angle = -static_cast<double>(angles.const_data_ptr<float>()[i]) * std::numbers::pi / 180;
      const double c = std::cos(angle);
      const double s = std::sin(angle);
      for (const double value : {c, -s, s, c, c * -x + s * -y + x, -s * -x + c * -y + y}) rows.push_back(value);
    }
    const at::Tensor matrix = at::tensor(rows, at::kDouble).to(at::kFloat).view({-1, 3, 2});
    const at::Tensor scaled = matrix / at::tensor({0.5 * w, 0.5 * h}, at::kDouble).to(at::kFloat);
    at::Tensor base = at::empty({height, width, 3});
    base.select(2, 0).copy_(at::linspace(-w * 0.5 + 0.5, w * 0.5 - 0.5, width));
    base.select(2, 1).copy_(at::linspace(-h * 0.5 + 0.5, h * 0.5 - 0.5, height).unsqueeze(1));
    base.select(2, 2).fill_(1);
    const int64_t n = angles.numel();
    return at::bmm(base.view({1, height * width, 3}).expand({n, -1, -1}), scaled).view({n, height, width, 2});
  }

  /// torchvision: what lies outside is marked by a channel of ones that is sampled along.
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    const auto [least, most] = range();
    at::Tensor angles = at::empty({images.size(0)});  // [N]
    for (int64_t i = 0; i < images.size(0); ++i) {
      angles.mutable_data_ptr<float>()[i] = static_cast<float>(draws.of(i).uniform(least, most));
    }
    images = as_floats(images, [&](const at::Tensor& floats) { return turned_by(angles, floats); });
  }
  at::Tensor turned_by(const at::Tensor& angles, const at::Tensor& images) const {
    const at::Tensor ones = at::ones({images.size(0), 1, images.size(2), images.size(3)}, images.options());
    const bool nearest = interpolation == "nearest";
    constexpr int64_t kZeros = 0;  // padding mode of grid_sampler
    const at::Tensor sampled =
        at::grid_sampler_2d(at::cat({images, ones}, 1), grid(angles, images.size(2), images.size(3)).to(images.dtype()),
                            nearest ? 1 : 0, kZeros, false);
    const at::Tensor inside = sampled.narrow(1, images.size(1), 1);
    const at::Tensor turned = sampled.narrow(1, 0, images.size(1));
    return nearest ? at::where(inside < 0.5, at::tensor(fill, images.options()), turned)
                   : turned * inside + (1 - inside) * fill;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_geometry_transforms(TransformRegistry& transforms) {
  transforms.add<Pad>("Pad", "adds a border to each image");
  transforms.add<CenterCrop>("CenterCrop", "the middle of each image");
  transforms.add<Resize>("Resize", "resizes each image");
  transforms.add<RandomRotation>("RandomRotation", "turns each image by an angle of its own, keeping its size");
}

}  // namespace trainrun
