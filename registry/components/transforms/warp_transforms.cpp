#include <ATen/ops/linalg_lstsq.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "registry/components/transforms/drawing.h"
#include "registry/components/transforms/warping.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

using Degrees = std::variant<double, Bounds>;

Bounds range_of(const Degrees& degrees) {
  if (const auto* one = std::get_if<double>(&degrees)) return {-*one, *one};
  return std::get<Bounds>(degrees);
}

void check_degrees(const Degrees& degrees, const char* name, Checker& checker) {
  const auto [least, most] = range_of(degrees);
  if (least > most) {
    checker.fail(name, std::holds_alternative<double>(degrees) ? "must be >= 0" : "the smaller number comes first");
  }
}

/// The parameters that all of these share.
template <class C>
void describe_sampling(Fields<C>& f) {
  f.optional("interpolation", &C::interpolation).doc("how new pixels are computed from old ones");
  f.optional("fill", &C::fill)
      .doc("value of the areas that come in from outside the image: one number, or one for each channel");
  f.optional("field", &C::field).doc("the field of the batch to change");
}

struct RandomRotation {
  Degrees degrees;
  Sampling interpolation = Sampling::kNearest;
  std::optional<std::array<double, 2>> center;
  Fill fill = 0.0;
  std::string field = "image";

  static void describe(Fields<RandomRotation>& f) {
    f.required("degrees", &RandomRotation::degrees)
        .unit("degrees")
        .doc("angles are drawn from -degrees to degrees; or from [least, most]; counter-clockwise");
    f.optional("center", &RandomRotation::center)
        .unit("pixels")
        .doc("[x, y] of the point to turn around, from the upper left; null: the image's centre");
    describe_sampling(f);
  }
  void check(Checker& checker) const { check_degrees(degrees, "degrees", checker); }
  void change(DatasetInfo& info) const {
    check_fill(fill, pixel_field(info, field, "RandomRotation"), "RandomRotation");
  }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    std::vector<Affine> changes;
    for (int64_t i = 0; i < images.size(0); ++i) {
      RandomStream random = draws.of(i);
      changes.push_back(turned_by(draw_number(range_of(degrees), random)));
      changes.back().center = center;
    }
    images = sampled(images, affine_grid(changes, images.size(2), images.size(3)), interpolation, fill);
  }
  std::optional<RandomRotation> for_masks(double outside) const {
    RandomRotation masks = *this;
    masks.interpolation = Sampling::kNearest;
    masks.fill = outside;
    return masks;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct RandomAffine {
  using Shear = std::variant<double, Bounds, std::array<double, 4>>;
  Degrees degrees;
  std::optional<std::array<double, 2>> translate;
  std::optional<Bounds> scale;
  std::optional<Shear> shear;
  Sampling interpolation = Sampling::kNearest;
  Fill fill = 0.0;
  std::optional<std::array<double, 2>> center;
  std::string field = "image";

  static void describe(Fields<RandomAffine>& f) {
    f.required("degrees", &RandomAffine::degrees)
        .unit("degrees")
        .doc("angles are drawn from -degrees to degrees; or from [least, most]; clockwise");
    f.optional("translate", &RandomAffine::translate)
        .at_least(0)
        .at_most(1)
        .doc("[x, y]: an image is moved by up to this share of its width, and of its height; null: not at all");
    f.optional("scale", &RandomAffine::scale)
        .greater_than(0)
        .doc("the factor of its size is drawn from [least, most]; null: 1");
    f.optional("shear", &RandomAffine::shear)
        .unit("degrees")
        .doc(
            "angles along x are drawn from -shear to shear; or from [least, most]; of four numbers, the last two are "
            "for angles along y; null: 0");
    f.optional("center", &RandomAffine::center)
        .unit("pixels")
        .doc("[x, y] of the point that stays where it is, from the upper left; null: the image's centre");
    describe_sampling(f);
  }
  void check(Checker& checker) const {
    check_degrees(degrees, "degrees", checker);
    if (scale && (*scale)[0] > (*scale)[1]) checker.fail("scale", "the smaller number comes first");
    if (!shear) return;
    if (const auto* four = std::get_if<std::array<double, 4>>(&*shear)) {
      if ((*four)[0] > (*four)[1] || (*four)[2] > (*four)[3]) checker.fail("shear", "the smaller number comes first");
    } else {
      check_degrees(along_x(), "shear", checker);
    }
  }
  Degrees along_x() const {
    if (const auto* one = std::get_if<double>(&*shear)) return *one;
    if (const auto* two = std::get_if<Bounds>(&*shear)) return *two;
    const auto& four = std::get<std::array<double, 4>>(*shear);
    return Bounds{four[0], four[1]};
  }
  void change(DatasetInfo& info) const { check_fill(fill, pixel_field(info, field, "RandomAffine"), "RandomAffine"); }

  /// In torchvision's order: angle, x, y, scale, shears.
  Affine draw_change(double height, double width, RandomStream& random) const {
    Affine change;
    change.center = center;
    change.angle = draw_number(range_of(degrees), random);
    if (translate) {
      const double x = (*translate)[0] * width;
      const double y = (*translate)[1] * height;
      change.translate[0] = std::nearbyint(draw_number({-x, x}, random));
      change.translate[1] = std::nearbyint(draw_number({-y, y}, random));
    }
    if (scale) change.scale = draw_number(*scale, random);
    if (!shear) return change;
    change.shear[0] = draw_number(range_of(along_x()), random);
    const auto* four = std::get_if<std::array<double, 4>>(&*shear);
    if (four) change.shear[1] = draw_number({(*four)[2], (*four)[3]}, random);
    return change;
  }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    const int64_t height = images.size(2);
    const int64_t width = images.size(3);
    std::vector<Affine> changes;
    for (int64_t i = 0; i < images.size(0); ++i) {
      RandomStream random = draws.of(i);
      changes.push_back(draw_change(static_cast<double>(height), static_cast<double>(width), random));
    }
    images = sampled(images, affine_grid(changes, height, width), interpolation, fill);
  }
  std::optional<RandomAffine> for_masks(double outside) const {
    RandomAffine masks = *this;
    masks.interpolation = Sampling::kNearest;
    masks.fill = outside;
    return masks;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct RandomPerspective {
  double distortion_scale = 0.5;
  double p = 0.5;
  Sampling interpolation = Sampling::kBilinear;
  Fill fill = 0.0;
  std::string field = "image";

  static void describe(Fields<RandomPerspective>& f) {
    f.optional("distortion_scale", &RandomPerspective::distortion_scale)
        .at_least(0)
        .at_most(1)
        .doc("how far each corner moves inwards at most: 1 is to the image's centre");
    f.optional("p", &RandomPerspective::p).at_least(0).at_most(1).doc("probability that an image is changed");
    describe_sampling(f);
  }
  void change(DatasetInfo& info) const {
    check_fill(fill, pixel_field(info, field, "RandomPerspective"), "RandomPerspective");
  }

  struct Corner {
    double x, y;
  };
  using Corners = std::array<Corner, 4>;  // upper left, upper right, lower right, lower left

  /// Where the corners go, drawn in torchvision's order.
  Corners draw_corners(int64_t height, int64_t width, RandomStream& random) const {
    const int64_t half_height = height / 2;
    const int64_t half_width = width / 2;
    const int64_t down = static_cast<int64_t>(distortion_scale * static_cast<double>(half_height)) + 1;
    const int64_t right = static_cast<int64_t>(distortion_scale * static_cast<double>(half_width)) + 1;
    Corners corners{};
    for (size_t i = 0; i < corners.size(); ++i) {
      const int64_t x = random.integer(right) + (i == 1 || i == 2 ? width - right : 0);
      const int64_t y = random.integer(down) + (i >= 2 ? height - down : 0);
      corners[i] = {static_cast<double>(x), static_cast<double>(y)};
    }
    return corners;
  }
  /// The coefficients that take each of `corners` to where it comes from, solved by least squares as torchvision does.
  static std::array<double, 8> coefficients(const Corners& corners, int64_t height, int64_t width) {
    const auto right = static_cast<double>(width - 1);
    const auto bottom = static_cast<double>(height - 1);
    const Corners sources = {{{0, 0}, {right, 0}, {right, bottom}, {0, bottom}}};
    std::vector<double> rows;
    std::vector<double> wanted;
    for (size_t i = 0; i < corners.size(); ++i) {
      const auto [x, y] = corners[i];
      const auto [u, v] = sources[i];
      rows.insert(rows.end(), {x, y, 1, 0, 0, 0, -u * x, -u * y, 0, 0, 0, x, y, 1, -v * x, -v * y});
      wanted.insert(wanted.end(), {u, v});
    }
    const at::Tensor matrix = at::tensor(rows, at::kDouble).view({8, 8});
    const at::Tensor solution =
        std::get<0>(at::linalg_lstsq(matrix, at::tensor(wanted, at::kDouble), std::nullopt, "gels")).to(at::kFloat);
    std::array<double, 8> result{};
    std::copy_n(solution.const_data_ptr<float>(), result.size(), result.begin());
    return result;
  }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    images = each_changed(images, draws, [&](const at::Tensor& image, RandomStream& random) {
      if (random.uniform() >= p) return image;
      const int64_t height = image.size(2);
      const int64_t width = image.size(3);
      const auto places =
          perspective_grid(coefficients(draw_corners(height, width, random), height, width), height, width);
      return sampled(image, places, interpolation, fill);
    });
  }
  std::optional<RandomPerspective> for_masks(double outside) const {
    RandomPerspective masks = *this;
    masks.interpolation = Sampling::kNearest;
    masks.fill = outside;
    return masks;
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_warp_transforms(TransformRegistry& transforms) {
  transforms.add<RandomRotation>("RandomRotation", "turns each image by an angle of its own, keeping its size");
  transforms.add<RandomAffine>("RandomAffine", "turns, moves, scales and shears each image, keeping its size");
  transforms.add<RandomPerspective>("RandomPerspective",
                                    "shows an image as if seen from another viewpoint, with some probability");
}

}  // namespace trainrun
