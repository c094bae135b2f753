#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <variant>

#include "registry/components/transforms/fields.h"
#include "registry/components/transforms/layout.h"
#include "registry/components/transforms/padding.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

/// Calls `body` with a value of an unsigned type as large as one element, for transforms that only move elements.
template <class Body>
void with_element(const at::Tensor& tensor, const Body& body) {
  switch (tensor.element_size()) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    case 8:
      return body(uint64_t{});
    default:
      throw Error("images of " + std::to_string(tensor.element_size()) + " bytes per number cannot be transformed");
  }
}

struct Normalize {
  using Numbers = std::variant<double, std::vector<double>>;
  Numbers mean;
  Numbers std;
  std::string field = "image";

  static void describe(Fields<Normalize>& f) {
    f.required("mean", &Normalize::mean)
        .not_empty("expected at least one number")
        .doc("subtracted from each channel: one number, or one for each channel");
    f.required("std", &Normalize::std)
        .greater_than(0)
        .not_empty("expected at least one number")
        .doc("each channel is then divided by this: one number, or one for each channel");
    f.optional("field", &Normalize::field).doc("the field of the batch to change");
  }
  void check(Checker& checker) const {
    if (list(mean).size() > 1 && list(std).size() > 1 && list(mean).size() != list(std).size()) {
      checker.fail("std", "has " + std::to_string(list(std).size()) + " numbers, but mean has " +
                              std::to_string(list(mean).size()));
    }
  }
  static std::vector<double> list(const Numbers& numbers) {
    if (const double* one = std::get_if<double>(&numbers)) return {*one};
    return std::get<std::vector<double>>(numbers);
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const;
};

/// (x - mean) / std, each operation rounded to float32, as torchvision computes it.
class NormalizeTransform : public Transform {
 public:
  explicit NormalizeTransform(const Normalize& options)
      : field_(options.field),
        mean_(of_channels(Normalize::list(options.mean))),
        std_(of_channels(Normalize::list(options.std))) {}

  void describe(DatasetInfo& info) const override {
    const FieldInfo& field = image_field(info, field_, "Normalize");
    if (!at::isFloatingType(field.dtype)) {
      throw LayerError("Normalize: '" + field_ + "' holds integers (" + at::toString(field.dtype) +
                       "), expected float32");
    }
    const int64_t given = std::max(mean_.exact.numel(), std_.exact.numel());
    if (given != 1 && given != field.shape[0]) {
      throw LayerError("Normalize: mean and std have " + std::to_string(given) + " numbers, but '" + field_ + "' " +
                       batch_text(field.shape) + " has " + std::to_string(field.shape[0]) + " channels");
    }
  }

  Values values() const override { return Values::kPointwise; }
  void apply(Batch& batch, const SampleDraws&) const override {
    at::Tensor& images = batch.at(field_);  // [N, C, H, W]
    const bool is_float32 = images.is_cpu() && images.scalar_type() == at::kFloat;
    const auto as_images = [&](const Numbers& numbers) {
      return is_float32 ? numbers.float32 : numbers.exact.to(images.options());
    };
    images = images.sub(as_images(mean_)).div_(as_images(std_));
  }

 private:
  struct Numbers {
    at::Tensor exact;    // [C, 1, 1] float64
    at::Tensor float32;  // as nearly all images are
  };
  static Numbers of_channels(const std::vector<double>& numbers) {
    const at::Tensor exact = at::tensor(numbers, at::kDouble).view({-1, 1, 1});
    return {exact, exact.to(at::kFloat)};
  }

  std::string field_;
  Numbers mean_;
  Numbers std_;
};

std::unique_ptr<Transform> Normalize::build(const TransformInputs&) const {
  return std::make_unique<NormalizeTransform>(*this);
}

struct RandomCrop {
  Pair size;
  int64_t padding = 0;
  bool pad_if_needed = false;
  double fill = 0;
  PaddingMode padding_mode = PaddingMode::kConstant;
  std::string field = "image";

  static void describe(Fields<RandomCrop>& f) {
    f.required("size", &RandomCrop::size).at_least(1).doc("height and width of the part that is kept");
    f.optional("padding", &RandomCrop::padding).at_least(0).unit("pixels").doc("added at each side before the crop");
    f.optional("pad_if_needed", &RandomCrop::pad_if_needed)
        .doc("also add to images that are smaller than size, at both sides, what they lack");
    f.optional("fill", &RandomCrop::fill).doc("value of the padding, in mode constant");
    f.optional("padding_mode", &RandomCrop::padding_mode).doc(kPaddingModeDoc);
    f.optional("field", &RandomCrop::field).doc("the field of the batch to change");
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const;
};

/// Each image's window has its own place, drawn among H + 2 padding - height + 1 rows, then among the columns, as
/// torchvision draws it.
class RandomCropTransform : public Transform, public ChangesMasks {
 public:
  explicit RandomCropTransform(RandomCrop options) : options_(std::move(options)) {}

  void describe(DatasetInfo& info) const override {
    FieldInfo& field = image_field(info, options_.field, "RandomCrop");
    const bool has_known_size = !has_any_size(field);
    const Margins margins = has_known_size ? margins_of(field.shape[1], field.shape[2]) : margins_of(kMost, kMost);
    require_reach(field, margins.sides(), options_.padding_mode, "RandomCrop");
    if (has_known_size) require_fitting(field.shape);
    field.shape = {field.shape[0], options_.size[0], options_.size[1]};
  }

  Values values() const override {
    return options_.fill == 0 || !pads_by_constant() ? Values::kMoved : Values::kChanged;
  }
  void apply(Batch& batch, const SampleDraws& draws) const override {
    at::Tensor& field = batch.at(options_.field);
    require_fitting(field.sizes().slice(1).vec());
    const Margins margins = margins_of(field.size(2), field.size(3));
    const int64_t rows = field.size(2) + 2 * margins.rows - options_.size[0] + 1;  // that a window may begin at
    const int64_t columns = field.size(3) + 2 * margins.columns - options_.size[1] + 1;
    const bool is_made = !pads_by_constant();  // else it is known to be `fill`
    const at::Tensor images =
        in_order(is_made ? padded(field, margins.sides(), options_.padding_mode, options_.fill) : field);
    const Margins beyond = is_made ? Margins{} : margins;
    const int64_t n = images.size(0);
    const ImageLayout layout = layout_of(images);
    at::Tensor result = at::empty({n, images.size(1), options_.size[0], options_.size[1]},
                                  images.options().memory_format(images.suggest_memory_format()));
    const at::Tensor fill = at::tensor({options_.fill}, at::kDouble).to(images.scalar_type());
    with_element(images, [&]<class Element>(Element) {
      const auto* from = static_cast<const Element*>(images.const_data_ptr());
      auto* to = static_cast<Element*>(result.mutable_data_ptr());
      const Element padding = *static_cast<const Element*>(fill.const_data_ptr());
      const Plane plane = {images.size(2), images.size(3), layout.pixel};
      for (int64_t i = 0; i < n; ++i) {
        RandomStream random = draws.of(i);
        const int64_t top = random.integer(rows) - beyond.rows;
        const int64_t left = random.integer(columns) - beyond.columns;
        for (int64_t p = 0; p < layout.planes; ++p) {
          crop(from, plane, top, left, padding, to);
          from += plane.height * plane.width * plane.pixel;
          to += options_.size[0] * options_.size[1] * plane.pixel;
        }
      }
    });
    field = std::move(result);
  }
  std::shared_ptr<const Transform> for_masks(double fill) const override {
    RandomCrop masks = options_;
    masks.fill = fill;
    return std::make_shared<RandomCropTransform>(masks);
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 40;  // no image has such sides

  /// What is added above and below, and at the left and at the right.
  struct Margins {
    int64_t rows = 0, columns = 0;
    Sides sides() const { return {columns, rows, columns, rows}; }
  };
  Margins margins_of(int64_t height, int64_t width) const {
    const auto margin = [&](int64_t length, int64_t wanted) {
      const int64_t lacking = options_.pad_if_needed ? wanted - (length + 2 * options_.padding) : 0;
      return options_.padding + std::max<int64_t>(lacking, 0);
    };
    return {margin(height, options_.size[0]), margin(width, options_.size[1])};
  }

  void require_fitting(const std::vector<int64_t>& shape) const {
    const int64_t height = shape[1] + 2 * options_.padding;
    const int64_t width = shape[2] + 2 * options_.padding;
    if (options_.pad_if_needed || (options_.size[0] <= height && options_.size[1] <= width)) return;
    throw LayerError("RandomCrop: a window of " + pixels(options_.size[0], options_.size[1]) + " does not fit '" +
                     options_.field + "' " + batch_text(shape) + ", " + pixels(height, width) +
                     " with its padding of " + std::to_string(options_.padding) + "; write pad_if_needed: true");
  }
  bool pads_by_constant() const { return options_.padding_mode == PaddingMode::kConstant; }
  static std::string pixels(int64_t height, int64_t width) {
    return std::to_string(height) + "x" + std::to_string(width);
  }

  struct Plane {
    int64_t height, width, pixel;  // pixel: numbers of each
  };
  /// Copies the window whose corner is at (top, left) of one plane; what lies outside the plane is `padding`.
  template <class Element>
  void crop(const Element* from, const Plane& plane, int64_t top, int64_t left, Element padding, Element* to) const {
    const int64_t out_width = options_.size[1];
    const int64_t begin = std::clamp<int64_t>(-left, 0, out_width);                 // of a row: padding before it,
    const int64_t end = std::clamp<int64_t>(plane.width - left, begin, out_width);  // pixels, padding from it on
    const int64_t first = begin * plane.pixel;
    const int64_t last = end * plane.pixel;
    const int64_t all = out_width * plane.pixel;
    for (int64_t y = 0; y < options_.size[0]; ++y, to += all) {
      const int64_t row = top + y;
      if (row < 0 || row >= plane.height) {
        std::fill(to, to + all, padding);
        continue;
      }
      const Element* source = from + (row * plane.width + left) * plane.pixel;
      std::fill(to, to + first, padding);
      std::copy(source + first, source + last, to + first);
      std::fill(to + last, to + all, padding);
    }
  }

  RandomCrop options_;
};

std::unique_ptr<Transform> RandomCrop::build(const TransformInputs&) const {
  return std::make_unique<RandomCropTransform>(*this);
}

}  // namespace

void add_image_transforms(TransformRegistry& transforms) {
  transforms.add<Normalize>("Normalize", "(x - mean) / std, channel by channel");
  transforms.add<RandomCrop>("RandomCrop", "a window of each image at a random place, after padding");
}

}  // namespace trainrun
