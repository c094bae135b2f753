#include "runner/train/step_log.h"

#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

/// The rate that the first line of a run tells.
double first_rate(const std::vector<std::string>& overrides) {
  const TemporaryFolder folder;
  std::vector<std::string> all = {"training={max_steps: 1}", "evaluation.every=null"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  Script script;
  CHECK(train_in(folder / "run", script, all) == 0);
  return script.lines.at(0).lr;
}

}  // namespace

TEST_CASE("samples a second are those of training: evaluations and checkpoints do not count") {
  const TemporaryFolder folder;
  Script script;
  auto now = std::chrono::steady_clock::time_point();
  script.in_training = [&](const at::Tensor& input, int64_t) {
    now += std::chrono::seconds(1);
    return input;
  };
  script.in_evaluation = [&](const at::Tensor& input, int64_t) {
    now += std::chrono::seconds(100);
    return input;
  };
  script.at_checkpoint = [&](const std::string&) { now += std::chrono::seconds(1000); };
  Catalog catalog = catalog_with();
  const auto set_clock = [&](Job& job) { job.clock = [&] { return now; }; };
  train_in(folder / "run", script,
           {"training={max_steps: 12}", "evaluation.every=3", "checkpoint={every: 4, background: false}",
            "logging.every_steps=2"},
           catalog, set_clock);
  REQUIRE(script.lines.size() == 6);
  for (const StepRecord& line : script.lines) CHECK(line.samples_per_second == doctest::Approx(32));
  CHECK(script.lines.back().seconds == doctest::Approx(12 + 3 * 2 * 100 + 2 * 1000));  // all of it
}

TEST_CASE("the learning rate that is told is that of the first parameter group that is not frozen") {
  const std::string layers =
      "model.layers=[Flatten, {type: Linear, out_features: 8 SCALE}, {type: Linear, out_features: 10}]";
  const auto with_scale = [&](const std::string& scale) {
    return std::string(layers).replace(layers.find(" SCALE"), 6, scale);
  };
  CHECK(first_rate({with_scale(""), "optimizer={type: SGD, lr: 0.1}"}) == 0.1);
  CHECK(first_rate({with_scale(", lr_scale: 0"), "optimizer={type: SGD, lr: 0.1}"}) == 0.1);
  CHECK(first_rate({with_scale(", lr_scale: 0"), "optimizer={type: SGD, lr: 0.1}",
                    "scheduler={type: ConstantLR, factor: 0.5, total_iters: 5}"}) == 0.05);
  CHECK(first_rate({with_scale(""), "optimizer={type: SGD, lr: 0.1, param_groups: [{match: '^1', lr: 0}]}"}) == 0.1);
  CHECK(first_rate({with_scale(""), "optimizer={type: SGD, lr: 0.1, param_groups: [{match: '^1', lr: 0.2}]}"}) == 0.2);
  CHECK(first_rate({with_scale(""), "optimizer={type: SGD, lr: 0}"}) == 0);
}

TEST_CASE("lr_scaling multiplies the rate by the number of batches that make a step, or by its root") {
  const std::string layers = "model.layers=[Flatten, {type: Linear, out_features: 10}]";
  const auto rate = [&](const std::string& scaling) {
    return first_rate({layers, "optimizer={type: SGD, lr: 0.1}",
                       "training={max_steps: 1, gradient_accumulation_steps: 4, lr_scaling: " + scaling + "}"});
  };
  CHECK(rate("null") == 0.1);
  CHECK(rate("linear") == 0.4);
  CHECK(rate("sqrt") == 0.2);
  Recipe recipe;
  recipe.training.lr_scaling = LrScaling::kSqrt;
  recipe.training.gradient_accumulation_steps = 2;
  CHECK(recipe.lr_factor(8) == 4);
}

TEST_CASE("of groups that are all frozen the first is told") {
  CHECK(leading_group({{0, {}, 1}, {0, {}, 1}}) == 0);
  CHECK(leading_group({{0.1, {}, 0}, {0, {}, 1}, {0.1, {}, 1}}) == 2);
}

}  // namespace trainrun
