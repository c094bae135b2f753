#include <array>
#include <numeric>
#include <utility>

#include "registry/components/transforms/color.h"
#include "registry/components/transforms/drawing.h"
#include "registry/components/transforms/fields.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

struct ColorJitter {
  using Strength = std::optional<std::variant<double, Bounds>>;
  Strength brightness, contrast, saturation, hue;
  std::string field = "image";

  static void describe(Fields<ColorJitter>& f) {
    const auto add = [&f](const char* name, Strength ColorJitter::* member, const char* doc) {
      f.optional(name, member).doc(doc);
    };
    add("brightness", &ColorJitter::brightness,
        "the factor is drawn from 1 - brightness to 1 + brightness; or from [least, most]; null: left as it is");
    add("contrast", &ColorJitter::contrast, "the same for the contrast: 0 is one gray, 1 the image as it is");
    add("saturation", &ColorJitter::saturation, "the same for the saturation: 0 is gray, 1 the image as it is");
    add("hue", &ColorJitter::hue,
        "the hue is shifted by -hue to hue; or by [least, most]; 0.5 is half the circle of hues; null: left as it is");
    f.optional("field", &ColorJitter::field).doc("the field of the batch to change");
  }
  void check(Checker& checker) const {
    const auto check_one = [&](const char* name, const Strength& strength, bool is_hue) {
      if (!strength) return;
      constexpr double kHalf = 0.5;
      const auto* one = std::get_if<double>(&*strength);
      const Bounds range = one ? Bounds{is_hue ? -*one : *one, *one} : std::get<Bounds>(*strength);
      if (one ? *one < 0 : (!is_hue && range[0] < 0)) checker.fail(name, "must be >= 0");
      if (is_hue && (range[0] < -kHalf || range[1] > kHalf)) checker.fail(name, "a hue is shifted by -0.5 to 0.5");
      if (!one && range[0] > range[1]) checker.fail(name, "the smaller number comes first");
    };
    check_one("brightness", brightness, false);
    check_one("contrast", contrast, false);
    check_one("saturation", saturation, false);
    check_one("hue", hue, true);
  }
  void change(DatasetInfo& info) const { color_field(info, field, "ColorJitter"); }

  /// Nothing: this one is not changed, and nothing is drawn for it.
  static std::optional<Bounds> range_of(const Strength& strength, double neutral) {
    if (!strength) return std::nullopt;
    Bounds range{};
    if (const auto* one = std::get_if<double>(&*strength)) {
      range = {neutral - *one, neutral + *one};
      if (neutral == 1) range[0] = std::max(range[0], 0.0);
    } else {
      range = std::get<Bounds>(*strength);
    }
    if (range[0] == neutral && range[1] == neutral) return std::nullopt;
    return range;
  }
  using Adjust = at::Tensor (*)(const at::Tensor&, double);
  /// In a random order, as torchvision: the order is drawn first, then the factors of brightness, contrast, saturation
  /// and hue.
  at::Tensor changed(const at::Tensor& image, RandomStream& random) const {
    constexpr size_t kChanges = 4;
    const std::array<std::optional<Bounds>, kChanges> ranges = {range_of(brightness, 1), range_of(contrast, 1),
                                                                range_of(saturation, 1), range_of(hue, 0)};
    constexpr std::array<Adjust, kChanges> kAdjust = {adjust_brightness, adjust_contrast, adjust_saturation,
                                                      adjust_hue};
    std::array<size_t, kChanges> order{};
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = kChanges - 1; i > 0; --i) {
      std::swap(order[i], order[static_cast<size_t>(random.integer(static_cast<int64_t>(i) + 1))]);
    }
    std::array<double, kChanges> factors{};
    for (size_t i = 0; i < kChanges; ++i) {
      if (ranges[i]) factors[i] = draw_number(*ranges[i], random);
    }
    at::Tensor result = image;
    for (const size_t i : order) {
      if (ranges[i]) result = kAdjust[i](result, factors[i]);
    }
    return result;
  }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    images = each_changed(images, draws,
                          [&](const at::Tensor& image, RandomStream& random) { return changed(image, random); });
  }
  std::optional<ColorJitter> for_masks(double) const { return std::nullopt; }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct RandomGrayscale {
  double p = 0.1;
  std::string field = "image";

  static void describe(Fields<RandomGrayscale>& f) {
    f.optional("p", &RandomGrayscale::p).at_least(0).at_most(1).doc("probability that an image becomes gray");
    f.optional("field", &RandomGrayscale::field).doc("the field of the batch to change");
  }
  void change(DatasetInfo& info) const { color_field(info, field, "RandomGrayscale"); }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    images = each_changed(images, draws, [&](const at::Tensor& image, RandomStream& random) {
      return random.uniform() < p ? grayscale(image) : image;
    });
  }
  std::optional<RandomGrayscale> for_masks(double) const { return std::nullopt; }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct GaussianBlur {
  Pair kernel_size;
  std::variant<double, Bounds> sigma = Bounds{0.1, 2.0};
  std::string field = "image";

  static void describe(Fields<GaussianBlur>& f) {
    f.required("kernel_size", &GaussianBlur::kernel_size)
        .at_least(1)
        .unit("pixels")
        .doc("size of the window whose Gaussian-weighted mean each pixel becomes: odd; or [width, height]");
    f.optional("sigma", &GaussianBlur::sigma)
        .greater_than(0)
        .unit("pixels")
        .doc("the Gaussian's standard deviation; or [least, most], from which each image's is drawn");
    f.optional("field", &GaussianBlur::field).doc("the field of the batch to change");
  }
  void check(Checker& checker) const {
    if (kernel_size[0] % 2 == 0 || kernel_size[1] % 2 == 0) checker.fail("kernel_size", "must be odd");
    const auto* range = std::get_if<Bounds>(&sigma);
    if (range && (*range)[0] > (*range)[1]) checker.fail("sigma", "the smaller number comes first");
  }
  void change(DatasetInfo& info) const {
    const FieldInfo& images = pixel_field(info, field, "GaussianBlur");
    check_reach(images.shape[2], images.shape[1]);
  }
  /// The image is mirrored at its edges, where it shows no more than there is.
  void check_reach(int64_t width, int64_t height) const {
    const auto fits = [](int64_t size, int64_t kernel) { return size == kAnySize || kernel / 2 < size; };
    if (fits(width, kernel_size[0]) && fits(height, kernel_size[1])) return;
    throw LayerError("GaussianBlur: a kernel of " + std::to_string(kernel_size[0]) + "x" +
                     std::to_string(kernel_size[1]) + " pixels (width x height) reaches beyond '" + field + "', " +
                     std::to_string(width) + "x" + std::to_string(height) + ", and its mirror image");
  }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    check_reach(images.size(3), images.size(2));
    const auto* one = std::get_if<double>(&sigma);
    const Bounds range = one ? Bounds{*one, *one} : std::get<Bounds>(sigma);
    images = each_changed(images, draws, [&](const at::Tensor& image, RandomStream& random) {
      return gaussian_blur(image, kernel_size[0], kernel_size[1], draw_number(range, random));
    });
  }
  std::optional<GaussianBlur> for_masks(double) const { return std::nullopt; }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_color_transforms(TransformRegistry& transforms) {
  transforms.add<ColorJitter>("ColorJitter", "changes brightness, contrast, saturation and hue, in a random order");
  transforms.add<RandomGrayscale>("RandomGrayscale", "makes an image gray, with some probability");
  transforms.add<GaussianBlur>("GaussianBlur", "blurs each image, by a standard deviation of its own");
}

}  // namespace trainrun
