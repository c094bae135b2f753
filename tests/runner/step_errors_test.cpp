// What components throw while a job trains or evaluates is told in one line: who, where in the recipe, when.
#include "runner/train/step_errors.h"

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include "registry/tensors/component_error.h"
#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

/// Throws in the backward pass.
class BadGradient : public torch::autograd::Function<BadGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    TORCH_CHECK(false, "no gradient today\nand a second line");
  }
};

struct WithoutGradient {
  static void describe(Fields<WithoutGradient>&) {}
  Layer build(const LayerInputs&) const {
    return layer_of_function(
        [](const at::Tensor& input) { return ShapeMode::active() ? input : BadGradient::apply(input); });
  }
};

struct FailingLoss {
  static void describe(Fields<FailingLoss>&) {}
  Loss build(const LayerInputs&) const {
    return {nullptr, [](const Tensors& inputs) {
              TORCH_CHECK(ShapeMode::active(), "the loss is out of order");
              return inputs[0].mean();
            }};
  }
};

class OutOfOrder : public Metric {
 public:
  void update(const Tensors&) override { TORCH_CHECK(ShapeMode::active(), "the metric is out of order"); }
  Figures compute() const override { return {{"", 0}}; }
  void reset() override {}
};

struct FailingMetric {
  static void describe(Fields<FailingMetric>&) {}
  std::unique_ptr<Metric> build(const MetricInputs&) const { return std::make_unique<OutOfOrder>(); }
};

class StuckOptimizer : public Optimizer {
 public:
  StuckOptimizer() { add_group({}); }
  void step(const StepContext&) override { TORCH_CHECK(false, "the optimizer is stuck"); }
  NamedTensors state() override { return {}; }
};

struct FailingOptimizer {
  double lr = 0.1;
  static void describe(Fields<FailingOptimizer>& f) { f.optional("lr", &FailingOptimizer::lr).doc("the rate"); }
  std::unique_ptr<Optimizer> build(const OptimizerInputs&) const { return std::make_unique<StuckOptimizer>(); }
};

Catalog failing_components() {
  return catalog_with([](Catalog& catalog) {
    catalog.layers.add<WithoutGradient>("WithoutGradient", "cannot go back");
    catalog.losses.add<FailingLoss>("FailingLoss", "fails");
    catalog.metrics.add<FailingMetric>("FailingMetric", "fails");
    catalog.optimizers.add<FailingOptimizer>("FailingOptimizer", "fails");
  });
}

/// The message of the error that ends a run.
std::string failure_of(Script& script, const std::vector<std::string>& overrides) {
  const TemporaryFolder folder;
  Catalog catalog = failing_components();
  try {
    train_in(folder / "run", script, overrides, catalog);
  } catch (const TrainingError& error) {
    CHECK(script.reason == "error: " + std::string(error.what()));
    CHECK(content_of(folder / "run/log.txt").find("error: " + std::string(error.what()) + "\n") != std::string::npos);
    CHECK(error_details(error).size() > std::string(error.what()).size());
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

std::string failure_of(const std::vector<std::string>& overrides) {
  Script script;
  return failure_of(script, overrides);
}

auto fail_in_batch(int64_t wanted) {
  return [=](const at::Tensor& input, int64_t batch) {
    TORCH_CHECK(batch != wanted, "the probe broke\nin two lines");
    return input;
  };
}

}  // namespace

TEST_CASE("a layer that fails in a step is named, the innermost, with its place, the step, the batch and the shapes") {
  Script script;
  script.in_training = fail_in_batch(48);
  const std::string text = failure_of(
      script, {"model.layers=[Flatten, {type: Sequential, layers: [{type: Linear, out_features: 10}, Probe]}]"});
  CAPTURE(text);
  CHECK(
      text.ends_with("model.layers[1].layers[1]: Probe failed in training step 48 (epoch 1, batch 2) on [32, 10]: "
                     "the probe broke"));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("a batch of an accumulation window is counted as the epoch's") {
  Script script;
  script.in_training = fail_in_batch(6);
  const std::string text = failure_of(script, {"training={num_epochs: 1, gradient_accumulation_steps: 4}"});
  CHECK(text.find("Probe failed in training step 2 (epoch 0, batch 5) on [32, 1, 8, 8]: the probe broke") !=
        std::string::npos);
}

TEST_CASE("a layer that fails in an evaluation is named with the step before it") {
  Script script;
  script.in_evaluation = fail_in_batch(2);
  const std::string text = failure_of(script, {"evaluation.every=10", "dataloader.eval_batch_size=100"});
  CAPTURE(text);
  CHECK(text.ends_with("Probe failed in the evaluation after step 10 (batch 1) on [100, 1, 8, 8]: the probe broke"));
}

TEST_CASE("a backward pass that fails names the layer whose gradient could not be computed") {
  const std::string text = failure_of(
      {"model.layers=[Flatten, {type: Linear, out_features: 10}, {type: Sequential, layers: [WithoutGradient]}, ReLU, "
       "{type: Linear, out_features: 10}]"});
  CAPTURE(text);
  CHECK(
      text.ends_with("model.layers[2].layers[0]: the backward pass of WithoutGradient failed in training step 1 "
                     "(epoch 0, batch 0): no gradient today"));
}

TEST_CASE("beside other ranks a backward pass that fails here is not taken for a lost connection") {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  const Occasion occasion{Occasion::Phase::kTraining, 3, 0, 2};
  CHECK_THROWS_WITH_AS(run_backward_of_rank(BadGradient::apply(weight).sum(), occasion),
                       "the backward pass failed in training step 3 (epoch 0, batch 2): no gradient today",
                       TrainingError);
}

TEST_CASE("a loss, a metric and an optimizer that fail are named") {
  const std::string loss = failure_of({"loss=FailingLoss"});
  CAPTURE(loss);
  CHECK(
      loss.ends_with("loss: FailingLoss failed in training step 1 (epoch 0, batch 0) on [32, 10] and [32]: the loss "
                     "is out of order"));
  const std::string metric = failure_of({"metrics=[FailingMetric]", "evaluation.every=2"});
  CAPTURE(metric);
  CHECK(
      metric.ends_with("metrics[0]: FailingMetric failed in the evaluation after step 2 (batch 0) on [256, 10] and "
                       "[256]: the metric is out of order"));
  const std::string optimizer = failure_of({"optimizer=FailingOptimizer"});
  CAPTURE(optimizer);
  CHECK(
      optimizer.ends_with("optimizer: FailingOptimizer failed in training step 1 (epoch 0, batch 0): the optimizer "
                          "is stuck"));
}

TEST_CASE("an error's text is one line, and its details hold LibTorch's backtrace") {
  try {
    TORCH_CHECK(false, "first\nsecond");
  } catch (const std::exception& error) {
    CHECK(error_text(error) == "first");
    CHECK(error_details(error).find("second") != std::string::npos);
    CHECK(error_details(error).find("Exception raised from") != std::string::npos);
  }
  CHECK(error_text(std::bad_alloc()) == "out of memory");
  CHECK(error_text(std::runtime_error("\n  told late\nmore")) == "told late");
  CHECK(error_text(Error("one\ntwo")) == "one\ntwo");
}

}  // namespace trainrun
