#include <ATen/ops/arange.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <string>

#include "registry/kinds/dataset.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"
#include "tests/registry/dataset_support.h"

namespace trainrun {
namespace {

using test::all_of;
using test::check_info;
using test::dataset;
using test::open_dataset;

TEST_CASE("Synthetic gives what its shape says: images, features or token ids") {
  const auto field = [](const std::string& options) {
    const auto data = open_dataset(R"({"type": "Synthetic", "num_samples": 5, )" + options + "}");
    check_info(*data);
    return data->info().fields[0].name + "/" + data->info().target;
  };
  CHECK(field(R"("shape": [3, 9, 10])") == "image/label");
  CHECK(field(R"("shape": [7])") == "features/label");
  CHECK(field(R"("shape": [12, 5], "task": "regression", "num_targets": 3)") == "features/label");
  CHECK(field(R"("shape": [16], "vocab_size": 100)") == "input_ids/labels");
  CHECK(field(R"("shape": [16], "vocab_size": 3, "task": "regression")") == "input_ids/labels");
}

TEST_CASE("Synthetic's sample i is the same whatever is asked for, and however many samples there are") {
  for (const std::string options :
       {R"("shape": [1, 6, 6])", R"("shape": [8], "task": "regression")", R"("shape": [8], "vocab_size": 50)"}) {
    const auto small = open_dataset(R"({"type": "Synthetic", "num_samples": 10, )" + options + "}");
    const auto large = open_dataset(R"({"type": "Synthetic", "num_samples": 1000, )" + options + "}");
    const auto other = open_dataset(R"({"type": "Synthetic", "num_samples": 10, "seed": 1, )" + options + "}");
    const Batch a = small->get(at::tensor({7, 3, 7}, at::kLong));
    const Batch b = large->get(at::arange(20, at::kLong));
    for (size_t i = 0; i < 2; ++i) {
      const at::Tensor& of_a = a.fields()[i].tensor;
      const at::Tensor& of_b = b.fields()[i].tensor;
      CHECK((of_a[0] == of_b[7]).all().item<bool>());
      CHECK((of_a[1] == of_b[3]).all().item<bool>());
      CHECK((of_a[2] == of_b[7]).all().item<bool>());
    }
    CHECK_FALSE((other->get(at::arange(10, at::kLong)).fields()[0].tensor == b.fields()[0].tensor.slice(0, 0, 10))
                    .all()
                    .item<bool>());
    CHECK_THROWS_AS(small->get(at::tensor({10}, at::kLong)), Error);
  }
}

TEST_CASE("Synthetic's numbers have mean 0, its classes are drawn alike often, its tokens stay in the vocabulary") {
  const auto data =
      open_dataset(R"({"type": "Synthetic", "num_samples": 20000, "shape": [20], "num_classes": 4, "noise": 0})");
  const Batch batch = all_of(*data);
  CHECK(batch.at("label").bincount().min().item<int64_t>() > 4700);  // 5000 expected, standard deviation 61
  CHECK(batch.at("label").max().item<int64_t>() == 3);
  const auto noise =
      open_dataset(R"({"type": "Synthetic", "num_samples": 20000, "shape": [20], "task": "regression"})");
  const Batch plain = all_of(*noise);
  CHECK(std::abs(plain.at("features").mean().item<double>()) < 0.01);
  CHECK(std::abs(plain.at("features").var().item<double>() - 1) < 0.01);
  const auto text = open_dataset(R"({"type": "Synthetic", "num_samples": 2000, "shape": [30], "vocab_size": 11})");
  const Batch tokens = all_of(*text);
  CHECK(tokens.at("input_ids").min().item<int64_t>() == 0);
  CHECK(tokens.at("input_ids").max().item<int64_t>() == 10);
}

/// Loss of a linear model on evaluation samples after some steps of SGD, over the loss before.
double learned(const std::string& options, double learning_rate) {
  const std::string begin = R"({"type": "Synthetic", "num_samples": 512, )" + options;
  const Batch train = all_of(*open_dataset(begin + R"(, "seed": 0})"));
  const Batch eval = all_of(*open_dataset(begin + R"(, "seed": 1})"));
  const bool regression = train.fields()[1].tensor.is_floating_point();
  const auto input = [](const Batch& batch) {
    const at::Tensor& x = batch.fields()[0].tensor;
    if (x.is_floating_point()) return x.flatten(1);
    return torch::one_hot(x, 64).sum(1).to(at::kFloat);  // a bag of tokens
  };
  torch::manual_seed(0);
  const at::Tensor train_input = input(train);
  const at::Tensor eval_input = input(eval);
  torch::nn::Linear model(train_input.size(1), regression ? train.fields()[1].tensor.size(1) : 10);
  const auto loss = [&](const at::Tensor& x, const at::Tensor& target) {
    const at::Tensor output = model->forward(x);
    return regression ? at::mse_loss(output, target) : at::cross_entropy_loss(output, target);
  };
  const double before = loss(eval_input, eval.fields()[1].tensor).item<double>();
  torch::optim::SGD sgd(model->parameters(), learning_rate);
  for (int step = 0; step < 200; ++step) {
    sgd.zero_grad();
    loss(train_input, train.fields()[1].tensor).backward();
    sgd.step();
  }
  return loss(eval_input, eval.fields()[1].tensor).item<double>() / before;
}

TEST_CASE("Synthetic can be learned: what a model learns from one seed holds for another") {
  CHECK(learned(R"("shape": [1, 8, 8], "noise": 1)", 0.1) < 0.3);
  CHECK(learned(R"("shape": [32])", 0.1) < 0.3);
  CHECK(learned(R"("shape": [32], "task": "regression", "num_targets": 2)", 0.1) < 0.1);
  CHECK(learned(R"("shape": [40], "vocab_size": 64)", 0.05) < 0.5);
  CHECK(learned(R"("shape": [40], "vocab_size": 64, "task": "regression")", 0.01) < 0.5);
}

TEST_CASE("Synthetic refuses an empty or a huge shape") {
  CHECK_THROWS_AS(dataset(R"({"type": "Synthetic", "num_samples": 1, "shape": []})"), RecipeError);
  CHECK_THROWS_AS(dataset(R"({"type": "Synthetic", "num_samples": 1, "shape": [0]})"), RecipeError);
  CHECK_THROWS_AS(dataset(R"({"type": "Synthetic", "num_samples": 1, "shape": [100000, 100000]})"), RecipeError);
}

}  // namespace
}  // namespace trainrun
