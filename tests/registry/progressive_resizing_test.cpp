// ProgressiveResizing by itself: sizes over the steps, what a crop leaves, and masks.
#include <torch/torch.h>

#include "registry/kinds/build.h"
#include "runner/distributed/process_group.h"
#include "tests/registry/support.h"

namespace trainrun {
namespace {

using namespace test;

class StandingRun : public Run {
 public:
  explicit StandingRun(int64_t step) : step_(step) {}
  int64_t step() const override { return step_; }
  int64_t total_steps() const override { return 100; }
  uint64_t seed() const override { return 7; }
  NamedTensors parameters() const override { return {}; }
  bool has_pieces() const override { return false; }
  NamedTensors buffers() const override { return {}; }
  Communicator& ranks() const override { return alone_; }
  void estimate_batch_norms() override { FAIL("nothing is trained"); }

 private:
  int64_t step_;
  mutable ProcessGroup alone_;
};

/// Two images [2, 1, 12, 16] whose pixels are numbers, and masks of the same.
Batch batch_at(int64_t step, const std::string& options) {
  Batch batch;
  const at::Tensor pixels = torch::arange(2 * 12 * 16).reshape({2, 12, 16});
  batch.set("image", pixels.unsqueeze(1).to(torch::kFloat));
  batch.set("mask", pixels);
  batch.set("label", torch::arange(2));
  const auto callback =
      build_at_place(read<Component<CallbackKind>>("{type: ProgressiveResizing, " + options + "}", catalog()), {});
  StandingRun run(step);
  callback->before_forward(run, batch);
  return batch;
}

std::string sizes_at(int64_t step, const std::string& options) {
  return at::str(batch_at(step, options).at("image").sizes());
}

}  // namespace

TEST_CASE(
    "images have their initial size, then grow, and have their own size in the end, by multiples of an increment") {
  const std::string options = "initial_scale: 0.5, delay_fraction: 0.4, finetune_fraction: 0.2";
  CHECK(sizes_at(0, options) == "[2, 1, 6, 8]");
  CHECK(sizes_at(39, options) == "[2, 1, 6, 8]");
  CHECK(sizes_at(60, options) == "[2, 1, 9, 12]");   // 0.75
  CHECK(sizes_at(69, options) == "[2, 1, 9, 12]");   // 0.8625, or 13.8 pixels, which are 3.45 increments
  CHECK(sizes_at(71, options) == "[2, 1, 12, 16]");  // 14.2 pixels
  CHECK(sizes_at(99, options) == "[2, 1, 12, 16]");
  CHECK(sizes_at(69, options + ", size_increment: 1") == "[2, 1, 10, 14]");
  CHECK(sizes_at(0, "delay_fraction: 0.5, finetune_fraction: 0.5") == "[2, 1, 6, 8]");
  CHECK(sizes_at(50, "delay_fraction: 0.5, finetune_fraction: 0.5") == "[2, 1, 12, 16]");
}

TEST_CASE("a crop is one window of all images and, where asked for, of their masks; each step has its own") {
  const std::string crop = "mode: crop, resize_targets: true";
  std::set<int64_t> corners;
  for (int64_t step = 0; step < 20; ++step) {
    const Batch batch = batch_at(step, crop);
    const at::Tensor& image = batch.at("image");
    REQUIRE(at::str(image.sizes()) == "[2, 1, 6, 8]");
    CHECK(torch::equal(image.squeeze(1).to(torch::kLong), batch.at("mask")));
    const auto corner = image[0][0][0][0].item<int64_t>();
    corners.insert(corner);
    const at::Tensor whole = torch::arange(2 * 12 * 16).reshape({2, 12, 16}).to(torch::kFloat);
    CHECK(torch::equal(image.squeeze(1), whole.narrow(1, corner / 16, 6).narrow(2, corner % 16, 8)));
    CHECK(torch::equal(image, batch_at(step, crop).at("image")));
    CHECK(batch.at("label").size(0) == 2);
  }
  CHECK(corners.size() > 10);
}

TEST_CASE("resizing takes the nearest pixel, of images and of masks, as torch.nn.functional.interpolate does") {
  const Batch batch = batch_at(0, "resize_targets: true");
  const at::Tensor whole = torch::arange(2 * 12 * 16).reshape({2, 12, 16});
  const at::Tensor every_other = whole.slice(1, 0, 12, 2).slice(2, 0, 16, 2);
  CHECK(torch::equal(batch.at("mask"), every_other));
  CHECK(torch::equal(batch.at("image").squeeze(1), every_other.to(torch::kFloat)));
  CHECK(torch::equal(batch_at(0, "mode: resize").at("mask"), whole));
}

TEST_CASE("what is not an image is refused by name") {
  Batch batch;
  batch.set("x", torch::zeros({2, 5}));
  const auto callback = build_at_place(read<Component<CallbackKind>>("ProgressiveResizing", catalog()), {});
  StandingRun run(0);
  CHECK_THROWS_WITH_AS(callback->before_forward(run, batch), doctest::Contains("[N, C, H, W] smaller, but x is [N, 5]"),
                       Error);
}

}  // namespace trainrun
