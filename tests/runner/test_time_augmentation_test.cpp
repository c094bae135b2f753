#include "runner/train/test_time_augmentation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/flip.h>

#include "runner/train/evaluation.h"
#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

class NoRun : public Run {
 public:
  int64_t step() const override { return 0; }
  int64_t total_steps() const override { return 0; }
  uint64_t seed() const override { return 0; }
  bool has_pieces() const override { return false; }
  void estimate_batch_norms() override { FAIL("nothing is trained"); }
  NamedTensors parameters() const override { return {}; }
  NamedTensors buffers() const override { return {}; }
  Communicator& ranks() const override { return alone_; }

 private:
  mutable ProcessGroup alone_;
};

/// What is predicted for `images` by a model that does `forward`.
at::Tensor predicted(const std::vector<std::string>& views, const at::Tensor& images,
                     const std::function<at::Tensor(const at::Tensor&)>& forward) {
  NoRun run;
  const auto callback = test_time_augmentation(views);
  const auto scope = callback->around_evaluation(run);
  Batch batch;
  batch.set("image", images);
  batch.set("label", at::arange(images.size(0)));
  return scope->predictor()->predict(batch, [&](const Batch& given) { return Tensors{forward(given.at("image"))}; })[0];
}

/// Pixel by pixel: the images as they are `rows` further down and `columns` further to the right, reflected at the edge.
at::Tensor shifted(const at::Tensor& images, int64_t rows, int64_t columns) {
  const int64_t height = images.size(2), width = images.size(3);
  const auto inside = [](int64_t i, int64_t size) { return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i; };
  at::Tensor result = at::empty_like(images);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      result.select(3, x).select(2, y).copy_(
          images.select(3, inside(x + columns, width)).select(2, inside(y + rows, height)));
    }
  }
  return result;
}

bool is_near(const at::Tensor& found, const at::Tensor& expected) { return at::allclose(found, expected, 1e-5, 1e-6); }

at::Tensor as_rows(const at::Tensor& images) { return images.flatten(1); }

}  // namespace

TEST_CASE("a prediction is the mean over the views, and what is given for each pixel is mirrored back") {
  const at::Tensor images = at::arange(2 * 3 * 16 * 24, at::kFloat).reshape({2, 3, 16, 24}).sin();
  const at::Tensor mirrored = at::flip(images, {3});
  CHECK(is_near(predicted({"flip"}, images, as_rows), as_rows((images + mirrored) / 2)));
  CHECK(at::equal(predicted({"flip"}, images, [](const at::Tensor& x) { return x; }), images));
  at::Tensor five = images.clone();
  for (const int64_t rows : {-2, 2}) {
    for (const int64_t columns : {-3, 3}) five += shifted(images, rows, columns);
  }
  five /= 5;
  CHECK(is_near(predicted({"five_crop"}, images, as_rows), as_rows(five)));
  CHECK(is_near(predicted({"flip", "five_crop"}, images, as_rows), as_rows((five + at::flip(five, {3})) / 2)));
  CHECK_THROWS_WITH_AS(predicted({"five_crop"}, images, [](const at::Tensor& x) { return x; }),
                       "evaluation.tta: five_crop is for models that give one output for an image, not one for each "
                       "pixel",
                       Error);
  CHECK_THROWS_WITH_AS(predicted({"flip"}, images.flatten(1), [](const at::Tensor& x) { return x; }),
                       "evaluation.tta is for images [N, C, H, W], and the batch has none", Error);
}

TEST_CASE("a run's evaluations look at the views, training does not, and trainrun eval gives the same figures") {
  const TemporaryFolder folder;
  const std::vector<std::string> common = {"training={max_steps: 6}", "evaluation={every: 3, tta: [flip]}",
                                           "checkpoint.every=3"};
  std::vector<std::string> plain_ones = common;
  plain_ones[1] = "evaluation.every=3";
  Script with, without;
  CHECK(train_in(folder / "with", with, common) == 0);
  CHECK(train_in(folder / "without", without, plain_ones) == 0);
  CHECK(with.evaluation_batches == 2 * without.evaluation_batches);
  CHECK(with.evaluations[1].metrics != without.evaluations[1].metrics);
  CHECK(with.lines.back().loss == without.lines.back().loss);
  Catalog catalog = catalog_with();
  TrainedRun run(find_trained(folder / "with"), {"logging.report_to=[]"}, catalog);
  CHECK((evaluate_trained(run).figures == with.evaluations[1].metrics));
}

}  // namespace trainrun
