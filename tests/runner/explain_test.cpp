#include "runner/foresight/explain.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "registry/graph/shape_mode.h"
#include "runner/model/model.h"
#include "runner/train/job.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

Explanation explain_recipe(const std::string& path, const std::vector<std::string>& overrides = {}) {
  return explain(load_recipe(path, overrides, test::catalog_of_the_program()));
}

using Strings = std::vector<std::string>;

const LayerSummary& layer(const Explanation& e, const std::string& name) {
  for (const LayerSummary& layer : e.layers) {
    if (layer.name == name) return layer;
  }
  throw Error("no layer " + name);
}

int64_t sum(const Explanation& e, int64_t LayerSummary::* member) {
  return std::accumulate(e.layers.begin(), e.layers.end(), int64_t{0},
                         [&](int64_t total, const LayerSummary& layer) { return total + layer.*member; });
}

}  // namespace

TEST_CASE("explain shows every shape, parameter count and FLOP of mnist_cnn without its data") {
  const Explanation e =
      explain_recipe("recipes/mnist_cnn.yaml", {"dataset.train.root=/nowhere", "dataset.eval.root=/nowhere"});
  std::vector<std::string> rows;
  for (const LayerSummary& layer : e.layers) {
    rows.push_back(layer.name + " " + layer.type + " " + join(layer.output_shapes) + " " +
                   std::to_string(layer.parameters));
  }
  CHECK(rows == std::vector<std::string>{"image input [N, 1, 28, 28] float32 0", "label target [N] int64, 10 classes 0",
                                         "0 Conv2d [N, 32, 26, 26] 320", "1 ReLU [N, 32, 26, 26] 0",
                                         "2 MaxPool2d [N, 32, 13, 13] 0", "3 Flatten [N, 5408] 0",
                                         "4 Linear [N, 128] 692352", "5 ReLU [N, 128] 0", "6 Linear [N, 10] 1290"});
  CHECK(e.parameters == 693962);
  CHECK(e.trainable_parameters == 693962);
  CHECK(layer(e, "0").flops == 2 * 26 * 26 * 32 * 9);
  CHECK(layer(e, "4").flops == 2 * 5408 * 128);
  CHECK(e.flops == 2 * (26 * 26 * 32 * 9 + 5408 * 128 + 128 * 10));
  CHECK(layer(e, "0").activation_bytes == 4 * 32 * 26 * 26);
  CHECK(layer(e, "3").activation_bytes == 0);  // a view
}

TEST_CASE("explain says of each layer how much of it learns, where something is frozen") {
  const Explanation whole = explain_recipe("recipes/digits_cnn.yaml");
  CHECK(to_text(whole).find("trained") == std::string::npos);
  CHECK(sum(whole, &LayerSummary::trainable_parameters) == whole.parameters);

  const Strings layers = {
      "model.layers=[{type: Conv2d, out_channels: 8, kernel_size: 3}, Flatten, {type: Linear, "
      "out_features: 16}, {type: Linear, out_features: 10}]"};
  Strings overrides = layers;
  overrides.push_back("model.freeze=['^0\\.', '2.weight']");
  const Explanation frozen = explain_recipe("recipes/digits_cnn.yaml", overrides);
  const int64_t last = 16 * 10 + 10;
  CHECK(layer(frozen, "0").parameters == 80);
  CHECK(layer(frozen, "0").trainable_parameters == 0);
  CHECK(layer(frozen, "2").trainable_parameters == 16);
  CHECK(layer(frozen, "3").trainable_parameters == last);
  CHECK(frozen.trainable_parameters == 16 + last);
  const auto row = [](const Explanation& e, const std::string& begin) {
    std::istringstream lines(to_text(e));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(begin)) return line;
    }
    return std::string("no line");
  };
  CHECK(row(frozen, "layer").find("parameters  trained") != std::string::npos);
  CHECK(row(frozen, "0 ").find("80   frozen") != std::string::npos);
  CHECK(row(frozen, "2 ").find("4,624       16") != std::string::npos);
  CHECK(row(frozen, "one sample").find("4,874      186") != std::string::npos);
  CHECK(row(frozen, "parameters") == "parameters       4,874: 186 trainable, 4,688 frozen");
  CHECK(to_json(frozen)["layers"][2]["trainable_parameters"] == 0);

  overrides.push_back("model.unfreeze_at_epoch=2");
  const Explanation late = explain_recipe("recipes/digits_cnn.yaml", overrides);
  CHECK(late.trainable_parameters == late.parameters);
  CHECK(layer(late, "0").late_parameters == 80);
  CHECK(row(late, "0 ").find("   after 2 epochs") != std::string::npos);
  CHECK(row(late, "2 ").find("16 + 4,608 after 2 epochs") != std::string::npos);
  CHECK(row(late, "parameters") == "parameters       4,874, all trainable, 4,688 of them only after 2 epochs");
}

TEST_CASE("explain counts steps as the job does") {
  const Explanation e = explain_recipe("recipes/mnist_cnn.yaml");
  CHECK(e.length.batches_per_epoch == 1875);
  CHECK(e.length.steps_per_epoch == 1875);
  CHECK(e.length.total_steps == 15000);
  CHECK(e.length.effective_batch_size() == 32);
  const TemporaryFolder folder;
  const std::vector<std::vector<std::string>> variants = {{},
                                                          {"dataloader.drop_last=true"},
                                                          {"training.gradient_accumulation_steps=4"},
                                                          {"training={num_epochs: 3, max_steps: 100}"},
                                                          {"training={max_steps: 77}"}};
  for (const std::vector<std::string>& overrides : variants) {
    Catalog& catalog = test::catalog_of_the_program();
    std::vector<std::string> all = overrides;
    all.push_back("output_dir=" + folder / "run");
    const LoadedRecipe loaded = load_recipe("recipes/digits_mlp.yaml", all, catalog);
    const Job job(loaded, {true, false});
    const LengthSummary length = explain(loaded).length;
    CHECK(length.total_steps == job.total_steps());
    CHECK(length.steps_per_epoch == job.steps_per_epoch());
    CHECK(length.train_samples == job.train_data->size());
  }
}

TEST_CASE("what depends on data that is not opened is left open") {
  const Explanation e = explain_recipe("recipes/regression_csv.yaml");
  CHECK_FALSE(e.length.train_samples);
  CHECK_FALSE(e.length.total_steps);
  CHECK(e.rates.empty());
  CHECK(to_text(e).find("known once the data is read") != std::string::npos);
  const Explanation limited =
      explain_recipe("recipes/regression_csv.yaml", {"training={num_epochs: null, max_steps: 50}"});
  CHECK(limited.length.total_steps == 50);
  CHECK(limited.rates.size() == 61);
}

TEST_CASE("layers within layers have their state-dict names, and every parameter is counted once") {
  Catalog& catalog = test::catalog_of_the_program();
  const LoadedRecipe loaded = load_recipe("recipes/mnist_residual.yaml", {}, catalog);
  const Explanation e = explain(loaded);
  CHECK(layer(e, "stage2").is_container);
  CHECK(layer(e, "stage2.0").type == "Residual");
  CHECK(layer(e, "stage2.0.main.0").depth == 2);
  CHECK(layer(e, "stage2.0.main.0").parameters == 16 * 32 * 9);
  CHECK(layer(e, "stage2.0.shortcut.0").parameters == 16 * 32);
  CHECK(sum(e, &LayerSummary::parameters) == e.parameters);
  std::set<std::string> owners;  // of the state dict's tensors, by the layers' names
  for (const auto& [name, tensor] : plan_model(loaded.recipe)->parameters())
    owners.insert(name.substr(0, name.rfind('.')));
  std::set<std::string> explained;
  for (const LayerSummary& layer : e.layers) {
    if (layer.parameters > 0) explained.insert(layer.name);
  }
  CHECK(owners == explained);
  // 3x3 convolutions of 16, 32 and 64 channels on 28x28, 14x14 and 7x7 pixels, two 1x1 ones, and the classifier.
  const int64_t products =
      784 * 9 * 16 * (1 + 2 * 16) + 196 * 32 * (9 * (16 + 32) + 16) + 49 * 64 * (9 * (32 + 64) + 32) + 640;
  CHECK(e.flops == 2 * products);
}

TEST_CASE("a Transformer's layer is one row, with the work of all its parts") {
  const Explanation e = explain_recipe("recipes/digits_transformer.yaml");
  const LayerSummary& encoder = layer(e, "3");
  CHECK(encoder.type == "TransformerEncoderLayer");
  CHECK_FALSE(encoder.is_container);
  const int64_t in_proj = 3 * 32 * 32;
  const int64_t out_proj = 32 * 32;
  const int64_t linears = 2 * 32 * 64;
  CHECK(encoder.parameters == in_proj + 3 * 32 + out_proj + 32 + linears + 64 + 32 + 2 * 2 * 32);
  CHECK(encoder.flops == 2 * 8 * (in_proj + out_proj + linears) + 2 * (2 * 8 * 8 * 32));  // 8 rows; scores, mixing
  CHECK(encoder.activation_bytes == 4 * 8 * 32);
  CHECK(std::none_of(e.layers.begin(), e.layers.end(),
                     [](const LayerSummary& layer) { return layer.name.find("linear1") != std::string::npos; }));
  CHECK(sum(e, &LayerSummary::parameters) == e.parameters);
}

TEST_CASE("the optimizer's memory is that of its state after a step") {
  const auto bytes = [](const std::string& optimizer) {
    return explain_recipe("recipes/mnist_cnn.yaml", {"optimizer=" + optimizer}).memory.optimizer_state;
  };
  const int64_t weights = 4 * 693962;
  const int64_t counters = 4 * 6;  // AdamW's `step`, one for each parameter
  CHECK(bytes("{type: AdamW}") == 2 * weights + counters);
  CHECK(bytes("{type: Adam, amsgrad: true}") == 3 * weights + counters);
  CHECK(bytes("{type: SGD, lr: 0.1}") == 0);
  CHECK(bytes("{type: SGD, lr: 0.1, momentum: 0.9}") == weights);
}

TEST_CASE("explain says what memory is for") {
  const MemorySummary memory = explain_recipe("recipes/mnist_cnn.yaml").memory;
  CHECK(memory.weights == 4 * 693962);
  CHECK(memory.gradients == 4 * 693962);
  CHECK(memory.activations == 32 * 4 * (2 * 32 * 26 * 26 + 32 * 13 * 13 + 2 * 128 + 10));
  CHECK(memory.batch == 32 * (4 * 28 * 28 + 8));
}

TEST_CASE("explain shows what each pattern of param_groups matched") {
  const Explanation e =
      explain_recipe("recipes/mnist_cnn.yaml", {"optimizer={type: SGD, lr: 0.05, param_groups: [{match: 'bias$', "
                                                "weight_decay: 0, lr: 0.1}, {match: '^0', momentum: 0.5}]}"});
  REQUIRE(e.groups.size() == 3);
  CHECK(e.groups[0].match == "bias$");
  CHECK(e.groups[0].overrides == "weight_decay: 0, lr: 0.1");
  CHECK(e.groups[0].tensors == 3);
  CHECK(e.groups[0].parameters == 32 + 128 + 10);
  CHECK(e.groups[0].lr == 0.1);
  CHECK(e.groups[1].parameters == 288);
  CHECK(e.groups[2].match.empty());
  CHECK(e.groups[2].parameters == 5408 * 128 + 128 * 10);
  CHECK_THROWS_AS(explain_recipe("recipes/mnist_cnn.yaml",
                                 {"optimizer={type: SGD, lr: 0.05, param_groups: [{match: nothing, lr: 1}]}"}),
                  RecipeError);
}

TEST_CASE("the learning-rate curve is the scheduler's, from the first step to the last") {
  const Explanation linear = explain_recipe("recipes/mnist_cnn.yaml");
  REQUIRE(linear.rates.size() == 61);
  CHECK(linear.rates.front().step == 0);
  CHECK(linear.rates.front().rates[0].lr == 0);
  CHECK(linear.rates.back().step == 14999);
  CHECK(linear.rates.back().rates[0].lr * 14500 / 1e-3 == doctest::Approx(1));
  const Explanation cycle = explain_recipe("recipes/mnist_wide_cnn.yaml");
  CHECK(cycle.rates.front().rates[0].lr / 1e-4 == doctest::Approx(1));
  CHECK(cycle.rates.front().rates[0].momentum == doctest::Approx(0.95));
  CHECK(cycle.rates.back().rates[0].lr / 1e-8 == doctest::Approx(1));
  CHECK(to_text(explain_recipe("recipes/digits_mlp.yaml")).find("constant 3.0e-03") != std::string::npos);
  const Explanation plateau = explain_recipe("recipes/digits_mlp.yaml", {"scheduler=ReduceLROnPlateau"});
  CHECK(plateau.monitor == "eval/loss");
}

TEST_CASE("of a billion steps a scheduler that goes from one to the next is followed for two million") {
  const std::vector<std::string> job = {"training={max_steps: 1000000000, num_epochs: null}"};
  const auto with = [&](const std::string& scheduler) {
    std::vector<std::string> overrides = job;
    overrides.push_back("scheduler=" + scheduler);
    return explain_recipe("recipes/digits_mlp.yaml", overrides);
  };
  const Explanation stepwise = with("{type: ExponentialLR, gamma: 0.999999}");
  CHECK(stepwise.length.total_steps == 1000000000);
  CHECK(stepwise.rates.back().step == 1999999);
  CHECK(stepwise.rates.back().rates[0].lr / (3e-3 * std::pow(0.999999, 1999999)) == doctest::Approx(1));
  CHECK(to_text(stepwise).find("learning rate: ExponentialLR, the first 2000000 steps\n") != std::string::npos);
  CHECK(to_text(stepwise).find("100 %") == std::string::npos);
  const Explanation closed = with("{type: LinearWithWarmup, warmup_steps: 10}");
  CHECK(closed.rates.back().step == 999999999);
}

TEST_CASE("a model of seven billion parameters is explained without computing anything") {
  const auto computed = [] {
    int64_t total = 0;
    for (const auto& [operation, bytes] : ShapeMode::computed()) total += bytes;
    return total;
  };
  const int64_t before = computed();
  const Explanation e = explain_recipe("tests/recipes/decoder_7b.yaml");
  CHECK(e.parameters > 6'800'000'000);
  CHECK(computed() - before < 1 << 20);
}

TEST_CASE("a schedule by epochs changes between epochs only") {
  const Explanation e = explain_recipe(
      "recipes/digits_mlp.yaml", {"scheduler={type: StepLR, step_size: 5, interval: epoch}", "training.num_epochs=10"});
  CHECK(e.rates.front().rates[0].lr / 3e-3 == doctest::Approx(1));
  CHECK(e.rates[29].rates[0].lr / 3e-3 == doctest::Approx(1));
  CHECK(e.rates[31].rates[0].lr / 3e-4 == doctest::Approx(1));
}

TEST_CASE("the text is readable at 100 columns and the JSON says the same") {
  for (const char* path : {"recipes/mnist_cnn.yaml", "recipes/mnist_wide_cnn.yaml", "recipes/mnist_residual.yaml"}) {
    const Explanation e = explain_recipe(path);
    std::istringstream lines(to_text(e));
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(std::count_if(line.begin(), line.end(), [](char byte) { return (byte & 0xC0) != 0x80; }) <= 100);
    }
    const auto json = to_json(e);
    CHECK(json.at("parameters") == e.parameters);
    CHECK(json.at("layers").size() == e.layers.size());
    CHECK(json.at("length").at("total_steps") == *e.length.total_steps);
    CHECK(json.at("learning_rate").size() == e.rates.size());
  }
}

}  // namespace trainrun
