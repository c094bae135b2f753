#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>

#include <numeric>

#include "registry/kinds/transform.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"

namespace trainrun {
namespace {

using test::contains;
using test::message_of;
using test::transform;

SampleDraws draws(int64_t num_samples, uint64_t seed = 5) {
  std::vector<int64_t> numbers(static_cast<size_t>(num_samples));
  std::iota(numbers.begin(), numbers.end(), 0);
  return {{seed}, numbers};
}

at::Tensor apply(const std::string& json, const at::Tensor& images, uint64_t seed = 5) {
  Batch batch;
  batch.set("image", images);
  transform(json)->apply(batch, draws(images.size(0), seed));
  return batch.at("image");
}

DatasetInfo images_of(std::vector<int64_t> shape, at::ScalarType dtype = at::kFloat) {
  DatasetInfo info;
  info.fields = {{"image", std::move(shape), dtype, std::nullopt}, {"label", {}, at::kLong, 10}};
  return info;
}

std::vector<int64_t> described(const std::string& json, std::vector<int64_t> shape) {
  DatasetInfo info = images_of(std::move(shape));
  transform(json)->describe(info);
  return info.fields[0].shape;
}

std::string description_error(const std::string& json, std::vector<int64_t> shape, at::ScalarType dtype = at::kFloat) {
  return message_of<LayerError>([&] {
    DatasetInfo info = images_of(std::move(shape), dtype);
    transform(json)->describe(info);
  });
}

at::Tensor counting(at::IntArrayRef shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return at::arange(1, numel + 1, at::kFloat).view(shape);
}

// --- Normalize

TEST_CASE("Normalize gives torchvision's bits") {
  // Python: x = tensor([0, 1, 77, 128, 254, 255], dtype=uint8).float().div(255);
  // x.sub_(tensor([0.1307])).div_(tensor([0.3081]))
  const float expected[] = {-0x1.b264e2p-2F, -0x1.a55c4p-2F, 0x1.1c99d2p-1F,
                            0x1.347af4p+0F,  0x1.678566p+1F, 0x1.69267ap+1F};
  const at::Tensor bytes = at::tensor({0, 1, 77, 128, 254, 255}, at::kByte);
  const at::Tensor images = bytes.to(at::kFloat).div_(255).view({1, 1, 2, 3});
  const at::Tensor result = apply(R"({"type": "Normalize", "mean": [0.1307], "std": [0.3081]})", images).flatten();
  for (int64_t i = 0; i < 6; ++i) CHECK(result[i].item<float>() == expected[i]);
  const at::Tensor same = apply(R"({"type": "Normalize", "mean": 0.1307, "std": 0.3081})", images).flatten();
  CHECK(same.equal(result));
}

TEST_CASE("Normalize treats each channel with its own numbers, and leaves the tensor it was given alone") {
  const at::Tensor images = counting({2, 3, 2, 2});
  const at::Tensor copy = images.clone();
  const at::Tensor result = apply(R"({"type": "Normalize", "mean": [1, 2, 3], "std": [2, 4, 8]})", images);
  CHECK(images.equal(copy));
  for (int64_t channel = 0; channel < 3; ++channel) {
    const at::Tensor expected = (images.select(1, channel) - (channel + 1)) / (2 << channel);
    CHECK(result.select(1, channel).equal(expected));
  }
  CHECK(apply(R"({"type": "Normalize", "mean": 1, "std": [1, 1, 1]})", images).equal(images - 1));
}

TEST_CASE("Normalize that does not fit is an error with both numbers") {
  CHECK(described(R"({"type": "Normalize", "mean": 0, "std": 1})", {3, 8, 8}) == std::vector<int64_t>{3, 8, 8});
  const std::string two = R"({"type": "Normalize", "mean": [0, 0], "std": [1, 1]})";
  CHECK(description_error(two, {3, 8, 8}) ==
        "Normalize: mean and std have 2 numbers, but 'image' [N, 3, 8, 8] has 3 channels");
  CHECK(contains(description_error(two, {3}), "expected images [N, C, H, W], 'image' is [N, 3]"));
  CHECK(contains(description_error(R"({"type": "Normalize", "mean": 0, "std": 1})", {3, 8, 8}, at::kByte), "integers"));
  CHECK(contains(description_error(R"({"type": "Normalize", "mean": 0, "std": 1, "field": "imag"})", {3, 8, 8}),
                 "no field 'imag'; did you mean image?"));
  CHECK_THROWS_AS(transform(R"({"type": "Normalize", "mean": 0, "std": 0})"), RecipeError);
  CHECK_THROWS_AS(transform(R"({"type": "Normalize", "mean": 0, "std": [1, -1]})"), RecipeError);
  CHECK_THROWS_AS(transform(R"({"type": "Normalize", "mean": [0, 0, 0], "std": [1, 1]})"), RecipeError);
  CHECK_THROWS_AS(transform(R"({"type": "Normalize", "mean": [], "std": 1})"), RecipeError);
  CHECK_THROWS_AS(transform(R"({"type": "Normalize", "mean": 0})"), RecipeError);
}

// --- RandomCrop

TEST_CASE("RandomCrop takes the window that each sample's random numbers say") {
  for (const auto dtype : {at::kFloat, at::kByte, at::kHalf, at::kDouble}) {
    const at::Tensor images = counting({4, 2, 5, 6}).to(dtype);
    const at::Tensor result = apply(R"({"type": "RandomCrop", "size": [5, 8], "padding": 2, "fill": 7})", images);
    CHECK((result.scalar_type() == dtype));
    const SampleDraws source = draws(4);
    const at::Tensor padded = at::constant_pad_nd(images, {2, 2, 2, 2}, 7);
    for (int64_t i = 0; i < 4; ++i) {
      RandomStream random = source.of(i);
      const int64_t top = random.integer(5);
      const int64_t left = random.integer(3);
      const at::Tensor window = padded[i].narrow(1, top, 5).narrow(2, left, 8);
      CHECK(result[i].equal(window));
    }
  }
}

TEST_CASE("RandomCrop reaches every place, and no other") {
  const at::Tensor images = counting({400, 1, 4, 4});
  const at::Tensor first = images.select(1, 0).select(1, 0).select(1, 0);  // of each image
  const at::Tensor corners =
      apply(R"({"type": "RandomCrop", "size": 2})", images).select(1, 0).select(1, 0).select(1, 0) - first;
  const at::Tensor counts = corners.to(at::kLong).bincount();
  for (int64_t y = 0; y < 3; ++y) {
    for (int64_t x = 0; x < 3; ++x) CHECK(counts[4 * y + x].item<int64_t>() > 15);  // 44 expected
  }
  CHECK(counts.gt(0).sum().item<int64_t>() == 9);
  CHECK(apply(R"({"type": "RandomCrop", "size": 4})", images).equal(images));
}

TEST_CASE("RandomCrop may be larger than the image, with padding larger than the window") {
  const at::Tensor images = counting({50, 1, 1, 1});
  const at::Tensor result = apply(R"({"type": "RandomCrop", "size": 2, "padding": 3})", images);
  CHECK(result.sizes() == at::IntArrayRef({50, 1, 2, 2}));
  CHECK((result.gt(0).sum({1, 2, 3}) <= 1).all().item<bool>());
  CHECK(result.gt(0).any().item<bool>());
}

TEST_CASE("RandomCrop describes the new shape, and says both sizes where the window does not fit") {
  CHECK(described(R"({"type": "RandomCrop", "size": [24, 20]})", {3, 28, 28}) == std::vector<int64_t>{3, 24, 20});
  CHECK(described(R"({"type": "RandomCrop", "size": 32, "padding": 2})", {1, 28, 28}) ==
        std::vector<int64_t>{1, 32, 32});
  CHECK(description_error(R"({"type": "RandomCrop", "size": 33, "padding": 2})", {1, 28, 28}) ==
        "RandomCrop: a window of 33x33 does not fit 'image' [N, 1, 28, 28], 32x32 with its padding of 2; write "
        "pad_if_needed: true");
  CHECK_THROWS_AS(transform(R"({"type": "RandomCrop", "size": 0})"), RecipeError);
  CHECK_THROWS_AS(transform(R"({"type": "RandomCrop", "size": 3, "padding": -1})"), RecipeError);
}

// --- RandomHorizontalFlip

TEST_CASE("RandomHorizontalFlip mirrors the images that each sample's random number says") {
  for (const auto dtype : {at::kFloat, at::kByte}) {
    const at::Tensor images = counting({8, 2, 3, 5}).to(dtype);
    const at::Tensor result = apply(R"({"type": "RandomHorizontalFlip"})", images);
    const SampleDraws source = draws(8);
    int64_t num_flipped = 0;
    for (int64_t i = 0; i < 8; ++i) {
      const bool flipped = source.of(i).uniform() < 0.5;
      CHECK(result[i].equal(flipped ? images[i].flip(-1) : images[i]));
      num_flipped += flipped ? 1 : 0;
    }
    CHECK(num_flipped > 0);
    CHECK(num_flipped < 8);
    CHECK(apply(R"({"type": "RandomHorizontalFlip", "p": 1})", images).equal(images.flip(-1)));
    CHECK(apply(R"({"type": "RandomHorizontalFlip", "p": 0})", images).equal(images));
  }
  CHECK(described(R"({"type": "RandomHorizontalFlip"})", {3, 8, 9}) == std::vector<int64_t>{3, 8, 9});
  CHECK(contains(description_error(R"({"type": "RandomHorizontalFlip"})", {4}), "expected images"));
  CHECK_THROWS_AS(transform(R"({"type": "RandomHorizontalFlip", "p": 1.5})"), RecipeError);
}

TEST_CASE("transforms take images that do not lie in order in memory") {
  const at::Tensor images = counting({2, 6, 4, 3}).permute({0, 3, 1, 2});  // channels last
  CHECK(apply(R"({"type": "RandomCrop", "size": [6, 4]})", images).equal(images));
  CHECK(apply(R"({"type": "RandomHorizontalFlip", "p": 1})", images).equal(images.flip(-1)));
  CHECK(apply(R"({"type": "Normalize", "mean": 0, "std": 1})", images).equal(images));
}

TEST_CASE("flips and crops keep the layout of memory, and do the same in either") {
  const at::Tensor floats = counting({5, 3, 6, 7});
  for (const auto& dtype : {at::kFloat, at::kByte, at::kDouble}) {
    const at::Tensor planes = floats.remainder(251).to(dtype);
    const at::Tensor pixels = planes.contiguous(at::MemoryFormat::ChannelsLast);
    for (const char* json : {R"({"type": "RandomHorizontalFlip"})", R"({"type": "RandomVerticalFlip"})",
                             R"({"type": "RandomCrop", "size": [4, 5]})",
                             R"({"type": "RandomCrop", "size": [6, 7], "padding": 3, "fill": 9})"}) {
      const at::Tensor of_planes = apply(json, planes);
      const at::Tensor of_pixels = apply(json, pixels);
      CHECK(of_pixels.equal(of_planes));
      CHECK_FALSE(of_planes.equal(planes));
      CHECK(of_planes.is_contiguous());
      CHECK(of_pixels.is_contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
}

}  // namespace
}  // namespace trainrun
