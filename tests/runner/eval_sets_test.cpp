// Several sets of evaluation data by name.
#include "runner/recipe/eval_sets.h"

#include <csignal>

#include "runner/train/evaluation.h"
#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

const std::string kClean = "{type: Digits, split: test}";
const std::string kNoisy = "{type: Synthetic, num_samples: 50, shape: [1, 8, 8], num_classes: 10, seed: 5}";

std::vector<std::string> evaluated_on(const std::string& sets) {
  return {"training={max_steps: 9}", "dataset.eval=null",  "dataset.eval=" + sets,
          "metrics=[Accuracy]",      "evaluation.every=3", "checkpoint={every: 3, keep_last: null}"};
}

double value_of(const Figures& figures, const std::string& name) {
  const auto found = figure_of(figures, name);
  CAPTURE(name);
  REQUIRE(found);
  return *found;
}

std::vector<std::string> names_of(const Figures& figures) {
  std::vector<std::string> names;
  for (const auto& [name, value] : figures) names.push_back(name);
  return names;
}

/// What is wrong with the recipe, whose own data set is not merged with what `overrides` say.
std::string fault_of(std::vector<std::string> overrides) {
  Catalog catalog = catalog_with();
  overrides.insert(overrides.begin(), "dataset.eval=null");
  try {
    load_recipe("tests/recipes/digits_small.yaml", overrides, catalog);
  } catch (const RecipeError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("each of several sets has the figures that it has alone, under its name") {
  const TemporaryFolder folder;
  Script both, clean, noisy;
  CHECK(train_in(folder / "both", both, evaluated_on("{clean: " + kClean + ", noisy: " + kNoisy + "}")) == 0);
  CHECK(train_in(folder / "clean", clean, evaluated_on(kClean)) == 0);
  CHECK(train_in(folder / "noisy", noisy, evaluated_on(kNoisy)) == 0);
  REQUIRE(both.evaluations.size() == 3);
  CHECK(names_of(both.evaluations[0].metrics) ==
        std::vector<std::string>{"eval/clean/loss", "eval/clean/accuracy", "eval/noisy/loss", "eval/noisy/accuracy"});
  CHECK(names_of(clean.evaluations[0].metrics) == std::vector<std::string>{"eval/loss", "eval/accuracy"});
  for (size_t i = 0; i < 3; ++i) {
    for (const std::string figure : {"loss", "accuracy"}) {
      const Figures& all = both.evaluations[i].metrics;
      CHECK(value_of(all, "eval/clean/" + figure) == value_of(clean.evaluations[i].metrics, "eval/" + figure));
      CHECK(value_of(all, "eval/noisy/" + figure) == value_of(noisy.evaluations[i].metrics, "eval/" + figure));
    }
  }
  Catalog catalog = catalog_with();
  script = nullptr;
  TrainedRun run(find_trained(folder / "both"), {"logging.report_to=[]"}, catalog);
  const auto again = evaluate_trained(run).figures;
  CHECK((again == both.evaluations[2].metrics));
}

TEST_CASE(
    "keep_best, EarlyStopping and a scheduler watch a figure of one set, and a stopped run ends as the whole one") {
  std::vector<std::string> overrides = evaluated_on("{clean: " + kClean + ", noisy: " + kNoisy + "}");
  overrides.insert(overrides.end(),
                   {"checkpoint.keep_best={monitor: eval/noisy/loss, mode: min}",
                    "callbacks=[{type: EarlyStopping, monitor: eval/clean/accuracy, mode: max, patience: 9}]",
                    "scheduler={type: ReduceLROnPlateau, monitor: eval/noisy/accuracy, mode: max, patience: 0}"});
  const TemporaryFolder folder;
  Script whole;
  CHECK(train_in(folder / "whole", whole, overrides) == 0);
  CHECK(std::filesystem::exists(folder / "whole/checkpoints/best"));
  for (const int64_t step : {2, 6}) {
    CAPTURE(step);
    Script stopped, rest;
    stopped.in_training = [=](const at::Tensor& input, int64_t batch) {
      if (batch == step) std::raise(SIGTERM);
      return input;
    };
    const std::string run = folder / ("stopped-" + std::to_string(step));
    CHECK(train_in(run, stopped, overrides) == SIGTERM);
    CHECK(train_in(run, rest, overrides) == 0);
    check_same_outcome(run, folder / "whole");
  }
}

TEST_CASE("what cannot be watched or named is an error at its place") {
  const std::string both = "dataset.eval={clean: " + kClean + ", noisy: " + kNoisy + "}";
  const std::string fault = fault_of({both, "checkpoint.keep_best={monitor: eval/accuracy, mode: max}"});
  CHECK(has(fault, "checkpoint.keep_best.monitor: evaluations have no 'eval/accuracy'"));
  CHECK(has(fault, "did you mean eval/clean/accuracy?"));
  CHECK(has(fault_of({"dataset.eval={loss: " + kClean + "}"}), "dataset.eval.loss: a set that is named loss"));
  CHECK(has(fault_of({"dataset.eval={a/b: " + kClean + "}"}), "dataset.eval.a/b: is the name of a set"));
  CHECK(has(fault_of({"dataset.eval={clean: {type: Digit}}"}), "dataset.eval.clean: "));
  CHECK(has(fault_of({"dataset.eval={split: test}"}), "dataset.eval: "));
  CHECK(has(
      fault_of({"dataset.eval={clean: " + kClean + ", large: {type: Synthetic, num_samples: 5, shape: [1, 9, 9]}}"}),
      "dataset.eval.large: its batches do not fit the model"));
}

}  // namespace trainrun
