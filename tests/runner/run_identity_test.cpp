#include "runner/run/run_identity.h"

#include <memory>

#include "runner/recipe/yaml.h"
#include "tests/doctest.h"
#include "tests/support.h"

namespace trainrun {
namespace {

using test::Strings;

Value parsed(const std::string& text) {
  std::vector<Problem> problems;
  Value value = parse_yaml(text, std::make_shared<const std::string>("a.yaml"), problems);
  REQUIRE(problems.empty());
  return value;
}

RecipeDifference compare(const std::string& before, const std::string& now, bool evaluation_counts = false) {
  return compare_recipes(parsed(before), parsed(now), evaluation_counts);
}

}  // namespace

TEST_CASE("spellings of one recipe are the same") {
  const std::vector<std::pair<std::string, std::string>> same = {
      {"{optimizer: {type: SGD, lr: 1e-3}}", "{optimizer: {lr: 0.001, type: SGD}}"},
      {"{optimizer: {type: SGD, lr: 1}}", "{optimizer: {type: SGD, lr: 1.0, momentum: 0, nesterov: false}}"},
      {"{loss: MSELoss}", "{loss: {type: MSELoss, reduction: mean}}"},
      {"{model: {layers: [ReLU]}}", "{model: {layers: [{type: ReLU}], weights: null}}"},
      {"{seed: 42}", "{dataloader: {}, deterministic: false}"},
      {"{dataloader: {batch_size: 4}}", "{dataloader: {batch_size: 4, shuffle: True}}"},
      {"{dataset: {train: {type: CSV, path: README.md}}}",
       "{dataset: {train: {type: CSV, path: ./tests/../README.md}}}"},
      {"{plugins: [/a/libx.so]}", "{plugins: [/b/libx.so]}"}};
  for (const auto& spellings : same) {
    const std::string& before = spellings.first;
    const std::string& now = spellings.second;
    CAPTURE(now);
    CHECK(compare(before, now).numbers == Strings{});
    CHECK(compare(before, now).others == Strings{});
    CHECK(compare(now, before).numbers == Strings{});
  }
}

TEST_CASE("what changes numbers is told from what does not") {
  CHECK(compare("{training: {max_steps: 1}}", "{training: {max_steps: 2}}").others ==
        Strings{"training.max_steps was 1 and is 2"});
  CHECK(compare("{logging: {every_steps: 1}}", "{}").others == Strings{"logging.every_steps was 1 and is 100"});
  CHECK(compare("{}", "{checkpoint: {keep_last: null}}").others == Strings{"checkpoint.keep_last was 2 and is null"});
  CHECK(compare("{output_dir: a}", "{output_dir: b}").others == Strings{"output_dir differs"});
  CHECK(compare("{}", "{checkpoint: {resume: a/b}}").numbers == Strings{"checkpoint.resume differs"});
  CHECK(compare("{}", "{checkpoint: {resume: 'no'}}").numbers == Strings{});
  CHECK(compare("{evaluation: {every: 3}}", "{}").numbers == Strings{});
  CHECK(compare("{evaluation: {every: 3}}", "{}", true).numbers == Strings{"evaluation.every differs"});
  CHECK(compare("{seed: 1}", "{seed: 2}").numbers == Strings{"seed was 1 and is 2"});
  CHECK(compare("{optimizer: SGD}", "{optimizer: {type: SGD, momentum: 0.9}}").numbers ==
        Strings{"optimizer.momentum was 0 and is 0.9"});
  CHECK(compare("{model: {layers: [ReLU]}}", "{model: {layers: [ReLU, ReLU]}}").numbers ==
        Strings{"model.layers differs"});
  CHECK(compare("{model: {layers: [ReLU]}}", "{model: {layers: [GELU]}}").numbers ==
        Strings{"model.layers[0] differs"});
  CHECK(compare("{dataset: {train: {type: CSV, path: a}}}", "{dataset: {train: {type: CSV, path: b}}}").numbers ==
        Strings{"dataset.train.path differs"});
  CHECK(compare("{dataset: {train: {type: CSV, label: '1'}}}", "{dataset: {train: {type: CSV, label: 1.0}}}")
            .numbers.size() == 1);
}

}  // namespace trainrun
