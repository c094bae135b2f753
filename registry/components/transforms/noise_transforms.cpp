#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "registry/components/transforms/drawing.h"
#include "registry/components/transforms/fields.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/kinds/padding_mask.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

/// Fills a float32 tensor that lies in order in memory.
void fill_normal(const at::Tensor& numbers, RandomStream& random) {
  auto* to = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < numbers.numel(); ++i) to[i] = static_cast<float>(random.normal());
}

at::Tensor normals(at::IntArrayRef shape, RandomStream& random) {
  at::Tensor numbers = at::empty(shape, at::kFloat);
  fill_normal(numbers, random);
  return numbers;
}

struct RandomErasing {
  double p = 0.5;
  Bounds scale = {0.02, 0.33};
  Bounds ratio = {0.3, 3.3};
  std::variant<double, std::vector<double>, std::string> value = 0.0;
  std::string field = "image";

  static void describe(Fields<RandomErasing>& f) {
    f.optional("p", &RandomErasing::p).at_least(0).at_most(1).doc("probability that an image loses a rectangle");
    f.optional("scale", &RandomErasing::scale)
        .at_least(0)
        .at_most(1)
        .doc("smallest and largest share of the image's area that the rectangle covers");
    f.optional("ratio", &RandomErasing::ratio)
        .greater_than(0)
        .doc("smallest and largest ratio of its height to its width");
    f.optional("value", &RandomErasing::value)
        .one_of({"random"})
        .doc("what is put there: one number, one for each channel, or random: normal noise");
    f.optional("field", &RandomErasing::field).doc("the field of the batch to change");
  }
  void check(Checker& checker) const {
    if (scale[0] > scale[1]) checker.fail("scale", "the smaller number comes first");
    if (ratio[0] > ratio[1]) checker.fail("ratio", "the smaller number comes first");
    const auto* list = std::get_if<std::vector<double>>(&value);
    if (list && list->empty()) checker.fail("value", "expected at least one number");
  }
  void change(DatasetInfo& info) const {
    const FieldInfo& images = image_field(info, field, "RandomErasing");
    float_field(info, field, "RandomErasing");
    const auto* list = std::get_if<std::vector<double>>(&value);
    if (list && list->size() != 1 && static_cast<int64_t>(list->size()) != images.shape[0]) {
      throw LayerError("RandomErasing: value has " + std::to_string(list->size()) + " numbers, but '" + field + "' " +
                       batch_text(images.shape) + " has " + std::to_string(images.shape[0]) + " channels");
    }
  }

  at::Tensor filling(const at::Tensor& image, int64_t height, int64_t width, RandomStream& random) const {
    if (std::holds_alternative<std::string>(value)) {
      return normals({image.size(0), height, width}, random).to(image.scalar_type());
    }
    const auto* one = std::get_if<double>(&value);
    const std::vector<double> values = one ? std::vector<double>{*one} : std::get<std::vector<double>>(value);
    return at::tensor(values, at::kDouble).to(image.scalar_type()).view({-1, 1, 1});
  }

  /// torchvision's draws, in its order: a rectangle that does not fit is drawn again, ten times at most.
  void erase(const at::Tensor& image, RandomStream& random) const {
    constexpr int kAttempts = 10;
    const int64_t height = image.size(1);
    const int64_t width = image.size(2);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const auto [h, w] = draw_sides(static_cast<double>(height * width), scale, ratio, random);
      if (h >= height || w >= width) continue;
      const at::Tensor filled = filling(image, h, w, random);
      const int64_t top = random.integer(height - h + 1);
      const int64_t left = random.integer(width - w + 1);
      image.narrow(1, top, h).narrow(2, left, w).copy_(filled);
      return;
    }
  }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    images = images.clone();
    for (int64_t i = 0; i < images.size(0); ++i) {
      RandomStream random = draws.of(i);
      if (random.uniform() < p) erase(images[i], random);
    }
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

struct GaussianNoise {
  double mean = 0;
  double sigma = 0.1;
  bool clip = true;
  std::string field = "image";

  static void describe(Fields<GaussianNoise>& f) {
    f.optional("mean", &GaussianNoise::mean).doc("mean of the noise");
    f.optional("sigma", &GaussianNoise::sigma).at_least(0).doc("standard deviation of the noise");
    f.optional("clip", &GaussianNoise::clip).doc("keep the result in [0, 1]");
    f.optional("field", &GaussianNoise::field).doc("the field of the batch to change");
  }
  void change(DatasetInfo& info) const { float_field(info, field, "GaussianNoise"); }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& numbers = batch.at(field);
    at::Tensor noise = at::empty(numbers.sizes(), at::kFloat);  // [N, …]
    for (int64_t i = 0; i < numbers.size(0); ++i) {
      RandomStream random = draws.of(i);
      fill_normal(noise[i], random);
    }
    const at::Tensor items = items_of(batch, field);
    const at::Tensor padding = numbers;
    numbers = numbers + (noise * sigma + mean).to(numbers.scalar_type());
    if (clip) numbers = numbers.clamp(0, 1);
    if (items.defined()) numbers = at::where(beside(items, numbers), numbers, padding);
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_noise_transforms(TransformRegistry& transforms) {
  transforms.add<RandomErasing>("RandomErasing", "overwrites a rectangle of each image, with some probability");
  transforms.add<GaussianNoise>("GaussianNoise", "adds normal noise to each number");
}

}  // namespace trainrun
