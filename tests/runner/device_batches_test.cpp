#include "runner/data/device_batches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "registry/language/error.h"
#include "runner/data/data_loader.h"
#include "tests/doctest.h"

namespace trainrun {
namespace {

/// 1,300 samples: {"features": [i, i + 0.5], "label": i}.
class Rows : public Dataset {
 public:
  static constexpr int64_t kSize = 1300;
  DatasetInfo info() const override { return {}; }
  void open() override {}
  int64_t size() const override { return kSize; }
  Batch get(const at::Tensor& indices) const override {
    Batch batch;
    const at::Tensor numbers = indices.to(at::kFloat).unsqueeze(1);
    batch.set("features", at::cat({numbers, numbers + 0.5}, 1));
    batch.set("label", indices.clone());
    return batch;
  }
};

class Applied : public Transform {
 public:
  using Function = std::function<void(Batch&, const SampleDraws&)>;
  explicit Applied(Function function) : function_(std::move(function)) {}
  void describe(DatasetInfo&) const override {}
  void apply(Batch& batch, const SampleDraws& draws) const override { function_(batch, draws); }

 private:
  Function function_;
};

DataLoader::Transforms one(Applied::Function function) { return {std::make_shared<Applied>(std::move(function))}; }

void twice(Batch& batch, const SampleDraws&) { batch.at("features").mul_(2); }

constexpr int64_t kBytes = Rows::kSize * (2 * sizeof(float) + sizeof(int64_t));

}  // namespace

TEST_CASE("kept samples give the batches that a loader makes") {
  const Rows data;
  const auto kept = samples_within(kBytes, at::kCPU, data, one(twice));
  REQUIRE(kept);
  CHECK(kept->size() == Rows::kSize);
  DataLoaderOptions options;
  options.batch_size = 100;
  options.shuffle = true;
  const DataLoader loader(data, one(twice), options);
  const auto batches = loader.iterate(3);
  while (const auto batch = batches->next()) {
    const Batch rows = rows_of(*kept, batch->at("label"));
    CHECK(at::equal(rows.at("features"), batch->at("features")));
    CHECK(at::equal(rows.at("label"), batch->at("label")));
  }
}

TEST_CASE("samples that take more than there is room for are not kept") {
  CHECK(!samples_within(kBytes - 1, at::kCPU, Rows(), one(twice)));
  CHECK(samples_within(kBytes, at::kCPU, Rows(), {}));
}

TEST_CASE("samples are not kept where a transform draws, or a sample's shape depends on its batch") {
  const auto noisy = [](Batch& batch, const SampleDraws& draws) {
    batch.at("features")[0].add_(draws.of(0).uniform());
  };
  CHECK(!samples_within(2 * kBytes, at::kCPU, Rows(), one(noisy)));
  const auto padded = [](Batch& batch, const SampleDraws&) {
    batch.set("features", at::zeros({batch.size(), batch.size() > 1 ? 3 : 2}));
  };
  CHECK(!samples_within(2 * kBytes, at::kCPU, Rows(), one(padded)));
  const auto shortened = [](Batch& batch, const SampleDraws&) {
    batch.set("features", batch.at("features").narrow(0, 0, batch.size() > 1 ? batch.size() - 1 : 1));
  };
  CHECK(!samples_within(2 * kBytes, at::kCPU, Rows(), one(shortened)));
}

TEST_CASE("a transform that wants company for a sample only means that samples are not kept") {
  const auto sociable = [](Batch& batch, const SampleDraws&) {
    if (batch.size() < 2) throw DataError("a batch of one");
  };
  CHECK(!samples_within(2 * kBytes, at::kCPU, Rows(), one(sociable)));
}

}  // namespace trainrun
