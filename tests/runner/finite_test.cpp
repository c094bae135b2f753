// What is not finite is neither saved nor called done.
#include "runner/train/finite.h"

#include <cmath>
#include <csignal>
#include <limits>

#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

/// Writes an infinity into a weight in its step number `after`, and leaves the weights alone otherwise.
struct Spoiler {
  double lr = 0.1;
  int64_t after = 1;
  static void describe(Fields<Spoiler>& f) {
    f.optional("lr", &Spoiler::lr).doc("the rate");
    f.optional("after", &Spoiler::after).doc("the step");
  }

  class Worker : public Optimizer {
   public:
    Worker(OptimizerInputs inputs, int64_t after) : inputs_(std::move(inputs)), left_(after) {
      for (const ParameterGroup& group : inputs_.groups) add_group(group.rates(0.1, std::nullopt));
    }
    void step(const StepContext&) override {
      const c10::AutoGradMode no_gradients(false);
      if (--left_ == 0) inputs_.groups.back().tensors.back().fill_(std::numeric_limits<double>::infinity());
    }
    NamedTensors state() override { return {}; }

   private:
    OptimizerInputs inputs_;
    int64_t left_;
  };

  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const {
    return std::make_unique<Worker>(inputs, after);
  }
};

std::string failure_in(const std::string& folder, Script& script, const std::vector<std::string>& overrides) {
  Catalog catalog = catalog_with([](Catalog& made) { made.optimizers.add<Spoiler>("Spoiler", "spoils weights"); });
  try {
    train_in(folder, script, overrides, catalog);
  } catch (const TrainingError& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

const std::vector<std::string> kSpoiled = {"training={max_steps: 6}", "evaluation.every=null",
                                           "optimizer={type: Spoiler, after: 6}"};

}  // namespace

TEST_CASE("weights that the last step made infinite are not saved, and the last finite checkpoint is named") {
  const TemporaryFolder folder;
  Script script;
  const std::string text =
      failure_in(folder / "run", script, {kSpoiled[0], kSpoiled[1], kSpoiled[2], "checkpoint.every=4"});
  CAPTURE(text);
  CHECK(text.starts_with("the weights are not finite after step 6: "));
  CHECK(contains(text, "4.bias holds NaN or an infinity"));
  CHECK(text.ends_with("; the newest checkpoint is " + (folder / "run/checkpoints/step-00000004")));
  CHECK(script.checkpoints == std::vector<int64_t>{4});
  CHECK_FALSE(std::filesystem::exists(folder / "run/summary.json"));
}

TEST_CASE("weights that end infinite are an error where nothing is saved, too") {
  const TemporaryFolder folder;
  Script script;
  const std::string text =
      failure_in(folder / "run", script, {kSpoiled[0], kSpoiled[1], kSpoiled[2], "checkpoint={every: null}"});
  CHECK(contains(text, "the weights are not finite after step 6"));
}

TEST_CASE("a signal does not save weights that are not finite") {
  const TemporaryFolder folder;
  Script script;
  script.in_training = [](const at::Tensor& input, int64_t batch) {
    if (batch == 6) std::raise(SIGTERM);
    return input;
  };
  const std::string text =
      failure_in(folder / "run", script, {"training={max_steps: 9}", kSpoiled[1], kSpoiled[2], "checkpoint.every=4"});
  CHECK(contains(text, "the weights are not finite after step 6"));
  CHECK(script.checkpoints == std::vector<int64_t>{4});
}

TEST_CASE("an evaluation that ends without a number is an error at the job's end, and never the best") {
  const TemporaryFolder folder;
  const std::vector<std::string> overrides = {"training={num_epochs: 3}", "dataloader.eval_batch_size=360",
                                              "checkpoint={keep_best: {monitor: eval/loss, mode: min}}"};
  Script script;
  script.in_evaluation = [](const at::Tensor& input, int64_t batch) {
    return batch < 2 ? input : input * -std::numeric_limits<double>::quiet_NaN();
  };
  const std::string text = failure_in(folder / "run", script, overrides);
  CHECK(text == "the last evaluation failed: eval/loss is nan; the newest checkpoint that was evaluated well is " +
                    (folder / "run/checkpoints/epoch-0001"));
  CHECK(script.evaluations.size() == 3);
  CHECK(std::filesystem::read_symlink(folder / "run/checkpoints/best") == "epoch-0001");
  CHECK(contains(content_of(folder / "run/log.txt"), "warning: eval/loss is nan after step 90"));
  CHECK_FALSE(std::filesystem::exists(folder / "run/summary.json"));
  Script again;  // the same command does not call it done either
  CHECK(failure_in(folder / "run", again, overrides) == text);
  CHECK(again.training_batches == 0);
}

TEST_CASE("a loss that is not a number is printed as nan, and the newest checkpoint is named") {
  const TemporaryFolder folder;
  Script script;
  script.in_training = [](const at::Tensor& input, int64_t batch) {
    return batch < 6 ? input : input * -std::numeric_limits<double>::quiet_NaN();
  };
  script.in_evaluation = [](const at::Tensor& input, int64_t) {  // the pass that is made again needs no gradients
    return input * -std::numeric_limits<double>::quiet_NaN();
  };
  const std::string text = failure_in(folder / "run", script, {"checkpoint.every=2", "evaluation.every=null"});
  CAPTURE(text);
  CHECK(text.starts_with("the loss is nan at step 6, epoch 0, batch 5: the output of model.layers["));
  CHECK(contains(text, " is the first that is not finite, "));
  CHECK(text.ends_with("; the newest checkpoint is " + (folder / "run/checkpoints/step-00000004")));
}

TEST_CASE("what metrics do not define is no fault") {
  CHECK_FALSE(non_finite_loss({{"eval/loss", 0.5}, {"eval/auroc", std::nan("")}}));
  CHECK(non_finite_loss({{"eval/loss", 0.5}, {"eval/loss/digit", INFINITY}}) == "eval/loss/digit is inf");
}

}  // namespace trainrun
