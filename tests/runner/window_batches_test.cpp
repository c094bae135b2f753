#include "runner/data/window_batches.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>

#include "tests/doctest.h"

namespace trainrun {
namespace {

/// Sample i is the number i; notes how many batches are alive.
class Counted : public Dataset {
 public:
  DatasetInfo info() const override { return {{{"x", {}, at::kDouble, std::nullopt}}, "x", 100}; }
  void open() override {}
  int64_t size() const override { return 100; }
  Batch get(const at::Tensor& indices) const override {
    auto* numbers = new std::vector<double>;  // NOLINT(cppcoreguidelines-owning-memory): the tensor's
    for (int64_t i = 0; i < indices.numel(); ++i) numbers->push_back(indices[i].item<double>());
    most_alive = std::max(most_alive, ++alive);
    const auto release = [this, numbers](void*) {
      delete numbers;  // NOLINT(cppcoreguidelines-owning-memory)
      --alive;
    };
    Batch batch;
    batch.set("x", at::from_blob(numbers->data(), {indices.numel()}, release, at::kDouble));
    return batch;
  }

  mutable int64_t alive = 0;
  mutable int64_t most_alive = 0;
};

/// The first sample of each batch of a pass.
std::vector<double> pass(WindowBatches& window, int64_t size) {
  std::vector<double> first;
  window.begin();
  for (int64_t i = 0; i < size; ++i) first.push_back(window.next().at("x")[0].item<double>());
  return first;
}

TEST_CASE("a window's batches are in memory one at a time, and come again for whoever asks") {
  const Counted data;
  const DataLoader loader(data, {}, {.batch_size = 5});
  const auto stream = loader.iterate(0);
  WindowBatches first(loader, *stream, 0, 0, 8);
  CHECK(pass(first, 8) == std::vector<double>{0, 5, 10, 15, 20, 25, 30, 35});
  CHECK(data.most_alive == 1);
  CHECK(data.alive == 0);
  {
    WindowBatches second(loader, *stream, 0, 8, 3);
    const auto numbers = pass(second, 3);
    CHECK(numbers == std::vector<double>{40, 45, 50});
    CHECK(data.alive == 0);
    CHECK(pass(second, 3) == numbers);
    CHECK(data.alive == 3);  // kept from the second pass on
    CHECK(pass(second, 3) == numbers);
    CHECK(data.alive == 3);
  }
  CHECK(data.alive == 0);
  WindowBatches third(loader, *stream, 0, 11, 1);
  CHECK(pass(third, 1) == std::vector<double>{55});
  const int64_t made = data.most_alive;
  CHECK(pass(third, 1) == std::vector<double>{55});
  CHECK(data.most_alive == made);
}

}  // namespace
}  // namespace trainrun
