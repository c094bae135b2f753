#include "runner/data/batch_maker.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <map>

#include "runner/data/data_loader.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"

namespace trainrun {
namespace {

/// Sample i is an image whose pixels are sin(i + 0, 1, 2, …), its label i mod 4.
class Waves : public Dataset {
 public:
  static constexpr int64_t kSize = 100;
  explicit Waves(at::MemoryFormat layout = at::MemoryFormat::Contiguous) : layout_(layout) {}
  DatasetInfo info() const override {
    return {{{"image", {2, 9, 7}, at::kFloat, std::nullopt}, {"label", {}, at::kLong, 4}}, "label", kSize};
  }
  void open() override {}
  int64_t size() const override { return kSize; }
  Batch get(const at::Tensor& indices) const override {
    const at::Tensor pixels = at::arange(2 * 9 * 7, at::kFloat).view({1, 2, 9, 7});
    Batch batch;
    batch.set("image", at::sin(indices.to(at::kFloat).view({-1, 1, 1, 1}) + pixels).contiguous(layout_));
    batch.set("label", indices.remainder(4));
    batch.set("index", indices.clone());
    return batch;
  }

 private:
  at::MemoryFormat layout_;
};

DataLoader::Transforms transforms(const std::vector<std::string>& list) {
  DataLoader::Transforms built;
  for (const std::string& json : list) built.push_back(test::transform(json));
  return built;
}

struct Cut {
  int64_t batch_size;
  int64_t world_size;
  int64_t num_workers = 0;
};

/// Sample by its number in the epoch, as batches cut in this way give it.
std::map<int64_t, Batch> samples_of(const DataLoader::Transforms& chosen, const Cut& cut, int64_t epoch = 2,
                                    const Drawing& drawing = {}) {
  const Waves data;
  std::map<int64_t, Batch> samples;
  for (int64_t rank = 0; rank < cut.world_size; ++rank) {
    const DataLoader loader(data, chosen,
                            {.batch_size = cut.batch_size,
                             .shuffle = true,
                             .num_workers = cut.num_workers,
                             .seed = 11,
                             .split = Split::kEverySampleOnce,
                             .rank = rank,
                             .world_size = cut.world_size,
                             .drawing = drawing});
    const auto stream = loader.iterate(epoch);
    int64_t number = rank;
    while (const auto batch = stream->next()) {
      for (int64_t row = 0; row < batch->size(); ++row, number += cut.world_size) {
        for (const Batch::Field& field : batch->fields()) samples[number].set(field.name, field.tensor[row].clone());
      }
    }
  }
  return samples;
}

void check_equal(const std::map<int64_t, Batch>& found, const std::map<int64_t, Batch>& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& item : expected) {  // clang 14 captures no structured binding
    const int64_t number = item.first;
    const Batch& sample = item.second;
    CAPTURE(number);
    for (const Batch::Field& field : sample.fields()) {
      CAPTURE(field.name);
      CHECK(at::equal(found.at(number).at(field.name), field.tensor));
    }
  }
}

const std::vector<Cut> kCuts = {{32, 2}, {16, 4}, {16, 1}, {1, 1}, {7, 3}, {100, 1}, {5, 2, 2}};

TEST_CASE("a sample is changed alike, bit for bit, whatever the batch size, the ranks and the workers") {
  const std::vector<std::vector<std::string>> lists = {
      {R"({"type": "RandomCrop", "size": [9, 7], "padding": 2})"},
      {R"({"type": "RandomHorizontalFlip"})"},
      {R"({"type": "RandomRotation", "degrees": 90})"},
      {R"({"type": "RandomRotation", "degrees": 30, "interpolation": "bilinear"})"},
      {R"({"type": "RandomErasing", "p": 0.7, "value": "random"})"},
      {R"({"type": "GaussianNoise", "sigma": 0.5, "clip": false})"},
      {R"({"type": "Mixup", "num_classes": 4, "alpha": 0.4})"},
      {R"({"type": "RandomCrop", "size": 5})", R"({"type": "Mixup", "num_classes": 4})",
       R"({"type": "RandomHorizontalFlip"})", R"({"type": "Mixup"})", R"({"type": "GaussianNoise"})"},
  };
  for (const auto& list : lists) {
    CAPTURE(list.back());
    const DataLoader::Transforms chosen = transforms(list);
    const auto expected = samples_of(chosen, {64, 1});
    CHECK(expected.size() == Waves::kSize);
    for (const Cut& cut : kCuts) check_equal(samples_of(chosen, cut), expected);
    const auto next_epoch = samples_of(chosen, {64, 1}, 3);
    CHECK_FALSE(at::equal(next_epoch.at(0).at("image"), expected.at(0).at("image")));
  }
}

TEST_CASE("images that lie pixel by pixel in memory do so after all transforms") {
  const Waves data(at::MemoryFormat::ChannelsLast);
  const std::vector<std::vector<std::string>> lists = {
      {},
      {R"({"type": "RandomCrop", "size": 5, "padding": 2, "padding_mode": "reflect"})"},
      {R"({"type": "Pad", "padding": 1, "padding_mode": "edge"})", R"({"type": "RandomHorizontalFlip"})"},
      {R"({"type": "Resize", "size": [6, 8]})", R"({"type": "RandomRotation", "degrees": 30})"},
      {R"({"type": "Mixup", "num_classes": 4})", R"({"type": "GaussianNoise"})"},
      {R"({"type": "RandomErasing"})", R"({"type": "Mixup", "num_classes": 4})"},
  };
  for (const auto& list : lists) {
    CAPTURE(list.size());
    const DataLoader loader(data, transforms(list), {.batch_size = 4, .shuffle = true});
    CHECK(loader.iterate(0)->next()->at("image").is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST_CASE("a sample that is drawn twice in an epoch is changed in two ways") {
  Drawing drawing;
  drawing.weights = at::zeros({Waves::kSize}, at::kDouble);
  drawing.weights[17] = 1;
  const auto chosen = transforms({R"({"type": "GaussianNoise"})"});
  const auto samples = samples_of(chosen, {64, 1}, 0, drawing);
  CHECK(samples.at(0).at("index").item<int64_t>() == 17);
  CHECK(samples.at(1).at("index").item<int64_t>() == 17);
  CHECK_FALSE(at::equal(samples.at(0).at("image"), samples.at(1).at("image")));
  for (const Cut& cut : kCuts) check_equal(samples_of(chosen, cut, 0, drawing), samples);
}

TEST_CASE("two transforms of a kind do not draw alike") {
  const std::string crop = R"({"type": "RandomHorizontalFlip"})";
  const auto once = samples_of(transforms({crop}), {64, 1});
  const auto twice = samples_of(transforms({crop, crop}), {64, 1});
  const auto never = samples_of({}, {64, 1});
  int64_t undone = 0;
  for (const auto& [number, sample] : never) {
    undone += at::equal(twice.at(number).at("image"), sample.at("image")) ? 1 : 0;
  }
  CHECK(undone > 20);  // 50 expected; were the draws alike, every flip would be undone
  CHECK(undone < 80);
}

TEST_CASE("Mixup mixes each sample with the one before it in the epoch, the first with the last") {
  const auto mixed = samples_of(transforms({R"({"type": "Mixup", "num_classes": 4})"}), {16, 2});
  const auto plain = samples_of({}, {64, 1});
  for (const auto& item : mixed) {
    const int64_t number = item.first;
    const Batch& sample = item.second;
    CAPTURE(number);
    const Batch& own = plain.at(number);
    const Batch& before = plain.at((number + Waves::kSize - 1) % Waves::kSize);
    const double share = RandomStream(SampleDraws({11, 2, 0}, {number}).of(0)).beta(1);
    const at::Tensor expected = own.at("image") * share + before.at("image") * (1 - share);
    CHECK((sample.at("image") - expected).abs().max().item<double>() < 1e-6);
    at::Tensor labels = at::zeros({4});
    labels[own.at("label").item<int64_t>()] += share;
    labels[before.at("label").item<int64_t>()] += 1 - share;
    CHECK((sample.at("label") - labels).abs().max().item<double>() < 1e-6);
  }
}

}  // namespace
}  // namespace trainrun
