#include "registry/catalog.h"

#include <torch/torch.h>

#include <map>

#include "registry/kinds/metric_details.h"
#include "registry/plugin_loader.h"
#include "tests/registry/catalog_support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

at::Tensor answers() { return torch::zeros({2, 5}, at::kLong); }
Tensors alike(size_t count) { return Tensors(count, torch::zeros({2, 3})); }
Tensors classes() { return {torch::zeros({2, 3}), torch::zeros({2}, at::kLong)}; }

/// What a loss reads, where that is not two tensors of one shape.
const std::map<std::string, Tensors>& loss_examples() {
  const auto lengths = torch::full({2}, 2, at::kLong);
  static const std::map<std::string, Tensors> examples = {
      {"CrossEntropyLoss", classes()},
      {"CausalLMLoss", {torch::zeros({2, 5, 3}), torch::zeros({2, 5}, at::kLong)}},
      {"NLLLoss", classes()},
      {"DiceLoss", {torch::zeros({2, 3, 4}), torch::zeros({2, 4}, at::kLong)}},
      {"MultiMarginLoss", classes()},
      {"MultiLabelMarginLoss", {torch::zeros({2, 3}), torch::zeros({2, 3}, at::kLong)}},
      {"GaussianNLLLoss", alike(3)},
      {"QuantileLoss", {torch::zeros({2, 3}), torch::zeros({2, 1})}},
      {"MarginRankingLoss", alike(3)},
      {"TripletMarginLoss", alike(3)},
      {"CosineEmbeddingLoss", {torch::zeros({2, 3}), torch::zeros({2, 3}), torch::ones({2})}},
      {"CTCLoss", {torch::zeros({5, 2, 3}), torch::ones({2, 2}, at::kLong), lengths, lengths}},
      {"OutputLoss", alike(1)},
      {"DPOLoss",
       {torch::zeros({4, 5, 3}), torch::zeros({2, 5}, at::kLong), torch::zeros({2, 5}, at::kLong),
        torch::zeros({4, 5, 3})}},
      {"ORPOLoss", {torch::zeros({4, 5, 3}), answers(), answers(), answers(), answers()}},
      {"SimPOLoss", {torch::zeros({4, 5, 3}), answers(), answers()}},
      {"KTOLoss",
       {torch::zeros({4, 5, 3}), answers(), answers(), torch::zeros({2}, at::kLong), torch::zeros({4, 5, 3})}},
      {"BradleyTerryLoss", {torch::zeros({4, 1})}},
      {"MultipleNegativesRankingLoss", {torch::zeros({4, 2, 3})}},
      {"CoSENTLoss", {torch::zeros({4, 2, 3}), torch::zeros({4, 1})}},
      {"CosineSimilarityLoss", {torch::zeros({4, 2, 3}), torch::zeros({4, 1})}},
  };
  return examples;
}

/// Logits and classes of the words of two sentences.
Tensors word_classes() { return {torch::zeros({2, 5, 3}), torch::zeros({2, 5}, at::kLong)}; }

/// What a metric reads, where that is not an output and a class for each sample.
const std::map<std::string, Tensors>& metric_examples() {
  static const std::map<std::string, Tensors> examples = {
      {"MSE", alike(2)},
      {"RMSE", alike(2)},
      {"MAE", alike(2)},
      {"MAPE", alike(2)},
      {"R2", alike(2)},
      {"PearsonCorr", alike(2)},
      {"SpearmanCorr", alike(2)},
      {"TripletAccuracy", alike(3)},
      {"CTCErrorRate", {torch::zeros({5, 2, 3}), torch::ones({2, 2}, at::kLong), torch::full({2}, 2, at::kLong)}},
      {"CosineSpearman", {torch::zeros({4, 2, 3}), torch::zeros({4, 1})}},
      {"RecallAtK", {torch::zeros({4, 2, 3})}},
      {"EntityPrecision", word_classes()},
      {"EntityRecall", word_classes()},
      {"EntityF1", word_classes()},
      {"PreferenceRewards",
       {torch::zeros({4, 5, 3}), torch::zeros({2, 5}, at::kLong), torch::zeros({2, 5}, at::kLong),
        torch::zeros({4, 5, 3})}},
      {"DesirableRewards",
       {torch::zeros({4, 5, 3}), answers(), answers(), torch::zeros({2}, at::kLong), torch::zeros({4, 5, 3})}},
      {"RewardScores", {torch::zeros({4, 1})}},
  };
  return examples;
}

/// What data sets and transforms are written with.
const std::map<std::string, std::string>& data_parameters() {
  static const std::map<std::string, std::string> parameters = {
      {"Concat", "datasets: [{type: Digits, split: train}, {type: Digits, split: test}]"},
      {"Mixture", "of: [{dataset: {type: Digits, split: train}}, {dataset: {type: Digits, split: test}, weight: 0.5}]"},
      {"CSV", "path: t.csv, label: y"},
      {"JSONL", "path: t.jsonl, label: y"},
      {"Parquet", "path: t.parquet, label: y"},
      {"HubDataset", "path: org/name, label: y"},
      {"Digits", "split: train"},
      {"FashionMNIST", "root: data, split: train"},
      {"KMNIST", "root: data, split: train"},
      {"CIFAR10", "root: data, split: train"},
      {"CIFAR100", "root: data, split: train"},
      {"ImageCSV", "path: photos.csv"},
      {"ImageFolder", "root: photos"},
      {"OxfordIIITPet", "root: data, split: trainval"},
      {"SegmentationFolder", "root: streets, num_classes: 3"},
      {"Shards", "path: a.tar"},
      {"MNIST", "root: data, split: train"},
      {"Split", "dataset: {type: Digits, split: train}"},
      {"SQLite", "path: t.db, table: t, label: y"},
      {"Synthetic", "num_samples: 8, shape: [3]"},
      {"TensorFile", "path: t.npz"},
      {"TextClassification", "path: t.tsv, tokenizer: t"},
      {"SentencePairs", "path: p.jsonl, tokenizer: t"},
      {"Texts", "path: t.txt, tokenizer: t"},
      {"TokenClassification", "path: t.conll, tokenizer: t"},
      {"GLUE", "root: data, task: SST-2, split: train, tokenizer: t"},
      {"MRPC", "root: data, split: train, tokenizer: t"},
      {"PreferencePairs", "path: p.jsonl, tokenizer: t"},
      {"DesirableAnswers", "path: p.jsonl, tokenizer: t"},
      {"Chat", "path: c.jsonl, tokenizer: t"},
      {"TextLM", "path: t.txt, block_size: 8"},
      {"TinyShakespeare", "root: data, split: val, block_size: 8"},
      {"TokenFile", "path: t.bin, block_size: 8"},
      {"Windows", "dataset: {type: Digits, split: train}, length: 2"},
      {"CenterCrop", "size: 4"},
      {"Copy", "to: other"},
      {"Normalize", "mean: [0.5], std: [0.5]"},
      {"Pad", "padding: 1"},
      {"RandomCrop", "size: 4"},
      {"RandomResizedCrop", "size: 4"},
      {"GaussianBlur", "kernel_size: 3"},
      {"RandomAffine", "degrees: 10"},
      {"RandomRotation", "degrees: 10"},
      {"Resize", "size: 4"},
      {"Standardize", "field: image"},
  };
  return parameters;
}

}  // namespace

TEST_CASE("every loss, metric, optimizer and scheduler of the catalog is built") {
  for (const auto& item : catalog().losses.entries()) {
    const std::string& name = item.first;
    CAPTURE(name);
    const auto known = loss_examples().find(name);
    const LayerInputs inputs = inputs_of(known == loss_examples().end() ? alike(2) : known->second);
    CHECK(component<LossKind>(name, "").build(inputs).forward(inputs.examples).numel() == 1);
  }
  for (const auto& item : catalog().metrics.entries()) {
    const std::string& name = item.first;
    CAPTURE(name);
    const auto known = metric_examples().find(name);
    const LayerInputs inputs = inputs_of(known == metric_examples().end() ? classes() : known->second);
    const auto metric = component<MetricKind>(name, "").build(inputs);
    if (name.starts_with("Entity")) name_classes(*metric, {"O", "B-X", "I-X"});
    metric->update(inputs.examples);
    CHECK(metric->compute().size() >= 1);
  }
  const std::map<std::string, std::string> optimizer_parameters = {
      {"ChainedOptimizer", "optimizers: [{optimizer: {type: SGD, lr: 0.1}}]"},
      {"GradientCentralization", "optimizer: {type: SGD, lr: 0.1}"},
      {"Lookahead", "optimizer: {type: SGD, lr: 0.1}"}};
  for (const auto& item : catalog().optimizers.entries()) {
    const std::string& name = item.first;
    CAPTURE(name);
    const auto parameter = torch::ones({3, 2}).requires_grad_();
    const auto loss = [&] {
      parameter.mutable_grad().reset();
      const torch::Tensor sum = (parameter * torch::tensor({1, 2})).sum();
      sum.backward();
      return sum.detach();
    };
    loss();
    const auto known = optimizer_parameters.find(name);
    const auto spec = component<OptimizerKind>(name, known == optimizer_parameters.end() ? "lr: 0.1" : known->second);
    const auto optimizer = spec.build(group_parameters(spec, {{"w", parameter}}));
    optimizer->step({optimizer->initial_rates(), loss});
    CHECK(parameter.ne(1).any().item<bool>());
    CHECK(parameter.isfinite().all().item<bool>());
  }
  const std::map<std::string, std::string> scheduler_parameters = {
      {"ChainedScheduler", "schedulers: [LinearLR]"},
      {"CosineAnnealingWarmRestarts", "T_0: 3"},
      {"CyclicLR", "base_lr: 0.01, max_lr: 0.1"},
      {"ExponentialLR", "gamma: 0.9"},
      {"MultiStepLR", "milestones: [2, 4]"},
      {"MultiplicativeLR", "lr_lambda: 0.9"},
      {"OneCycleLR", "max_lr: 0.1"},
      {"Piecewise", "points: [[0, 1], [5, 0.1]]"},
      {"SequentialLR", "schedulers: [LinearLR, CosineAnnealingLR], milestones: [3]"},
      {"StepLR", "step_size: 2"},
      {"SWALR", "swa_lr: 0.1"},
      {"WarmupStableDecay", "num_decay_steps: 3"}};
  for (const auto& item : catalog().schedulers.entries()) {
    const std::string& name = item.first;
    CAPTURE(name);
    const auto known = scheduler_parameters.find(name);
    std::vector<GroupRates> rates = {{0.5, 0.9}};
    component<SchedulerKind>(name, known == scheduler_parameters.end() ? "" : known->second)
        .build({rates, 10})
        ->set(5, rates);
    CHECK(std::isfinite(rates[0].lr));
  }
}

namespace {

/// One rank that stands for two alike.
class Twins : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t world_size() const override { return 2; }
  void sum(const at::Tensor& tensor) override { tensor.mul_(2); }
  FutureTensor start_sum(const at::Tensor& tensor) override {
    sum(tensor);
    return finished(tensor);
  }
};

}  // namespace

TEST_CASE("every communication hook of the catalog makes the mean of ranks that are alike") {
  for (const auto& item : catalog().comm_hooks.entries()) {
    CAPTURE(item.first);
    const bool is_power_sgd = item.first == "PowerSGD";  // its first steps are exact, later ones to its rank
    const auto hook =
        component<CommHookKind>(item.first, is_power_sgd ? "start_powerSGD_iter: 2, matrix_approximation_rank: 4" : "")
            .build({2});
    Twins ranks;
    for (int step = 0; step < 6; ++step) {
      GradientBucket bucket;
      bucket.is_last = true;
      bucket.values = torch::arange(104, at::kFloat) / 8;  // rows 0 … 7 of a matrix of rank 2, and a bias
      bucket.gradients = {bucket.values.narrow(0, 0, 96).view({8, 12}), bucket.values.narrow(0, 96, 8)};
      const at::Tensor expected = bucket.values.clone();
      const FutureTensor mean = hook->reduce(bucket, ranks);
      mean->wait();
      CHECK(torch::allclose(mean->value().toTensor(), expected, 1e-2, 1e-3));
    }
    const auto state = hook->state();
    component<CommHookKind>(item.first, "").build({2})->load_state(state);
  }
}

TEST_CASE("every adapter of the catalog computes what the layer computes with the weights that it merges into") {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& item : catalog().adapters.entries()) {
    CAPTURE(item.first);
    torch::nn::Linear linear(5, 7);
    AdapterInputs inputs;
    inputs.name = "body";
    inputs.type = "Linear";
    inputs.state = linear.ptr();
    inputs.operation =
        operation_of([module = linear.ptr()](const Tensors& in) -> Tensors { return {module->forward(in[0])}; });
    inputs.layers = {"body"};
    inputs.adaptable = AdaptableWeight();
    const Adapter adapter = component<AdapterKind>(item.first, "target: [body]").build(inputs);
    const at::Tensor x = torch::randn({3, 5});
    if (adapter.begin) adapter.begin();
    CHECK(torch::allclose(adapter.operation->run({x})[0], linear->forward(x), 1e-5, 1e-6));
    for (const auto& [name, parameter] : adapter.parameters) at::Tensor(parameter).add_(torch::rand_like(parameter));
    const at::Tensor changed = adapter.operation->run({x})[0];
    CHECK_FALSE(torch::allclose(changed, linear->forward(x), 1e-2, 1e-2));
    std::map<std::string, at::Tensor> weights = {{"weight", linear->weight}, {"bias", linear->bias}};
    for (const auto& [name, tensor] : adapter.merged()) weights[name] = tensor;
    CHECK(torch::allclose(changed, torch::linear(x, weights.at("weight"), weights.at("bias")), 1e-5, 1e-5));
  }
}

TEST_CASE("every data set and transform of the catalog is built") {
  const auto parameters_of = [](const std::string& name) {
    const auto known = data_parameters().find(name);
    return known == data_parameters().end() ? std::string() : known->second;
  };
  for (const auto& item : catalog().datasets.entries()) {
    CAPTURE(item.first);
    CHECK(component<DatasetKind>(item.first, parameters_of(item.first)).build({}) != nullptr);
  }
  for (const auto& item : catalog().transforms.entries()) {
    CAPTURE(item.first);
    if (item.first == "MaskTokens") continue;  // reads a tokenizer: tests/parity/masked_lm_parity_test.py
    DatasetInfo info{
        {{"image", {1, 8, 8}, at::kFloat, std::nullopt}, {"label", {}, at::kLong, 10}}, "label", std::nullopt};
    const auto transform = component<TransformKind>(item.first, parameters_of(item.first)).build({info});
    transform->describe(info);
    if (transform->learns()) continue;
    Batch batch;
    batch.set("image", torch::rand({4, 1, 8, 8}));
    batch.set("label", torch::tensor({0, 1, 0, 1}, at::kLong));
    transform->apply(batch, SampleDraws({}, {0, 1, 2, 3}));
    for (const FieldInfo& field : info.fields) {
      CAPTURE(field.name);
      CHECK(batch.at(field.name).sizes().slice(1) == at::IntArrayRef(field.shape));
    }
  }
}

TEST_CASE("components are documented: each has a line, and so has each parameter") {
  catalog().for_each([](const auto& registry) {
    for (const auto& item : registry.entries()) {
      const std::string& name = item.first;
      CAPTURE(name);
      CHECK(!item.second.doc.empty());
      for (const Parameter& parameter : item.second.parameters) {
        CAPTURE(parameter.name);
        CHECK(!parameter.doc.empty());
      }
    }
  });
}

TEST_CASE("a name can be registered once") {
  Catalog copy = catalog();
  struct Mine {
    static void describe(Fields<Mine>&) {}
    Layer build(const LayerInputs&) const { return {}; }
  };
  CHECK_THROWS_WITH_AS(
      copy.layers.add<Mine>("ReLU", "mine"),
      "a layer called ReLU is already registered by trainrun itself; trainrun itself must choose another name",
      PluginError);
}

TEST_CASE("parameter groups: the first pattern that matches wins, one that matches nothing is an error") {
  const auto spec = component<OptimizerKind>(
      "SGD", "lr: 0.1, param_groups: [{match: 'bias$', lr: 0.5}, {match: '^0', weight_decay: 0.1}]");
  const auto make = [] { return torch::ones({1}).requires_grad_(); };
  const auto inputs = group_parameters(spec, {{"0.weight", make()}, {"0.bias", make()}, {"1.weight", make()}});
  REQUIRE(inputs.groups.size() == 3);
  CHECK(inputs.groups[0].names == std::vector<std::string>{"0.bias"});
  CHECK(inputs.groups[1].names == std::vector<std::string>{"0.weight"});
  CHECK(inputs.groups[2].names == std::vector<std::string>{"1.weight"});
  CHECK(spec.build(inputs)->initial_rates()[0].lr == 0.5);
  CHECK_THROWS_AS(group_parameters(spec, {{"1.weight", make()}}), RecipeError);

  const auto scaled =
      group_parameters(spec, {{"0.weight", make()}, {"0.bias", make()}, {"1.weight", make()}, {"2.weight", make()}},
                       {{"1.weight", 0.1}});
  REQUIRE(scaled.groups.size() == 4);
  CHECK(scaled.groups[2].names == std::vector<std::string>{"1.weight"});
  CHECK(scaled.groups[2].lr_scale == 0.1);
  CHECK(scaled.groups[3].names == std::vector<std::string>{"2.weight"});
}
