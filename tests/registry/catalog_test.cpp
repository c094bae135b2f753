#include "registry/catalog.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>

#include "registry/graph/passes.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "registry/plugin_loader.h"
#include "tests/registry/support.h"
#include "tests/temporary_folder.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

/// What a component is written with, beyond its name, so that it can be built; and what flows into a layer.
struct ComponentExample {
  std::string parameters{};
  std::vector<int64_t> shape = {2, 3, 8, 8};
  at::ScalarType dtype = at::kFloat;
  std::string inputs{};
  std::string before{};  // the layers that make some of its inputs
};

/// Of the layers that exist over one, two and three dimensions.
void add_examples_of_dims(std::map<std::string, ComponentExample>& examples) {
  const std::vector<std::pair<std::string, std::string>> families = {
      {"Conv", "out_channels: 4, kernel_size: 3"},
      {"ConvTranspose", "out_channels: 4, kernel_size: 3"},
      {"BatchNorm", ""},
      {"InstanceNorm", ""},
      {"Dropout", ""},
      {"MaxPool", "kernel_size: 2"},
      {"AvgPool", "kernel_size: 2"},
      {"LPPool", "kernel_size: 2, norm_type: 2"},
      {"AdaptiveAvgPool", "output_size: 1"},
      {"AdaptiveMaxPool", "output_size: 2"},
      {"ZeroPad", "padding: 1"},
      {"ConstantPad", "padding: 1, value: 2"},
      {"ReflectionPad", "padding: 1"},
      {"ReplicationPad", "padding: 1"},
      {"CircularPad", "padding: 1"}};
  std::vector<int64_t> shape = {2, 3};
  for (const std::string dims : {"1d", "2d", "3d"}) {
    shape.push_back(8);
    const std::string pool =
        "{type: MaxPool" + dims + ", kernel_size: 2, return_indices: true, outputs: [values, indices]}";
    examples["MaxUnpool" + dims] = {"kernel_size: 2", shape, at::kFloat, "[values, indices]", pool};
    for (const auto& [family, parameters] : families) examples[family + dims] = {parameters, shape};
  }
}

/// The registered models, of up to 140 million parameters: here they are built without weights. What they compute
/// tests/parity/vision_models_parity_test.py compares with torchvision.
const std::set<std::string>& whole_models() {
  static const std::set<std::string> names = {
      "ConvNeXtTiny",     "EfficientNetB0",  "EfficientNetB1", "EfficientNetB2",
      "EfficientNetB3",   "EfficientNetB4",  "MobileNetV2",    "MobileNetV3Large",
      "MobileNetV3Small", "ResNet101",       "ResNet152",      "ResNet18",
      "ResNet34",         "ResNet50",        "UNet",           "VGG11",
      "VGG11_bn",         "VGG13",           "VGG13_bn",       "VGG16",
      "VGG16_bn",         "VGG19",           "VGG19_bn",       "ViT_B_16",
      "ViT_S_16",         "WideResNet101_2", "WideResNet50_2"};
  return names;
}

/// The registered language models, of up to 7 billion parameters, likewise: tests/parity/language_models_parity_test.py
/// compares them with transformers'.
const std::set<std::string>& language_models() {
  static const std::set<std::string> names = {"BertForMaskedLM",
                                              "BertForSequenceClassification",
                                              "BertForTokenClassification",
                                              "BertModel",
                                              "DistilBertForSequenceClassification",
                                              "DistilBertModel",
                                              "GPT2LMHeadModel",
                                              "GPT2Model",
                                              "LlamaForCausalLM",
                                              "MistralForCausalLM",
                                              "Qwen2ForCausalLM",
                                              "Qwen3ForCausalLM",
                                              "RobertaForMaskedLM",
                                              "RobertaForSequenceClassification",
                                              "RobertaForTokenClassification",
                                              "RobertaModel"};
  return names;
}
bool is_large(const std::string& name) { return whole_models().contains(name) || language_models().contains(name); }

/// A file of torch.jit.save, which is there as long as the program runs.
std::string saved_script() {
  static const TemporaryFolder folder;
  const std::string path = folder / "scale.pt";
  torch::jit::Module module("Scale");
  module.register_parameter("weight", torch::ones({8}).set_requires_grad(true), /*is_buffer=*/false);
  module.define("def forward(self, x):\n  return x * self.weight\n");
  module.save(path);
  return path;
}

std::map<std::string, ComponentExample> make_layer_examples() {
  std::map<std::string, ComponentExample> examples = {
      {"Add", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"Concat", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"GroupNorm", {"num_groups: 3"}},
      {"LocalResponseNorm", {"size: 2"}},
      {"Upsample", {"scale_factor: 2"}},
      {"PixelShuffle", {"upscale_factor: 2", {2, 4, 8, 8}}},
      {"PixelUnshuffle", {"downscale_factor: 2"}},
      {"ChannelShuffle", {"groups: 3"}},
      {"Unfold", {"kernel_size: 2"}},
      {"Fold", {"kernel_size: 2, output_size: 3", {2, 12, 4}}},
      {"Unflatten", {"dim: 2, unflattened_size: [2, -1]"}},
      {"Linear", {"out_features: 4"}},
      {"Embedding", {"num_embeddings: 7, embedding_dim: 4", {2, 5}, at::kLong}},
      {"LSTM", {"hidden_size: 4", {2, 5, 3}}},
      {"Reshape", {"shape: [4, -1]"}},
      {"Select", {"dim: 1, index: 0"}},
      {"Threshold", {"threshold: 0.1, value: 0"}},
      {"Mul", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"Sub", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"GaussianSample", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"MatMul", {"", {2, 3, 3}, at::kFloat, "[x, x]"}},
      {"Stack", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"CosineSimilarity", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"Bilinear", {"out_features: 4", {2, 3}, at::kFloat, "[x, x]"}},
      {"EmbeddingBag", {"num_embeddings: 7, embedding_dim: 4", {2, 5}, at::kLong}},
      {"RNN", {"hidden_size: 4", {2, 5, 3}}},
      {"GRU", {"hidden_size: 4", {2, 5, 3}}},
      {"Permute", {"dims: [0, 2, 3, 1]"}},
      {"Transpose", {"dim0: 1, dim1: -1"}},
      {"Unsqueeze", {"dim: 1"}},
      {"Split", {"split_size_or_sections: [1, 2]"}},
      {"Chunk", {"chunks: 3"}},
      {"Mean", {"dim: [2, 3]"}},
      {"Max", {"dim: 1"}},
      {"MultiheadAttention", {"num_heads: 2", {2, 5, 4}}},
      {"PositionalEncoding", {"", {2, 5, 4}}},
      {"TransformerEncoderLayer", {"nhead: 2", {2, 5, 4}}},
      {"TransformerEncoder", {"nhead: 2, num_layers: 2", {2, 5, 4}}},
      {"TransformerDecoderLayer", {"nhead: 2", {2, 5, 4}, at::kFloat, "[x, x]"}},
      {"TransformerDecoder", {"nhead: 2, num_layers: 2", {2, 5, 4}, at::kFloat, "[x, x]"}},
      {"Div", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"Pow", {"exponent: 2"}},
      {"Clamp", {"min: 0"}},
      {"Sum", {"dim: [2, 3]"}},
      {"Min", {"dim: 1"}},
      {"PairwiseDistance", {"", {2, 3}, at::kFloat, "[x, x]"}},
      {"Parameter", {"shape: [1, 3]", {2, 3}}},
      {"RNNCell", {"hidden_size: 4", {2, 3}}},
      {"GRUCell", {"hidden_size: 4", {2, 3}}},
      {"LSTMCell", {"hidden_size: 4", {2, 3}}},
      {"FractionalMaxPool2d", {"kernel_size: 2, output_size: 3"}},
      {"FractionalMaxPool3d", {"kernel_size: 2, output_size: 3", {2, 3, 8, 8, 8}}},
      {"AdaptiveLogSoftmaxWithLoss",
       {"n_classes: 9, cutoffs: [4], div_value: 1",
        {2, 3},
        at::kFloat,
        "[x, label]",
        "{type: Max, dim: 1, outputs: [v, label]}"}},
      {"StochasticDepth", {"p: 0.5"}},
      {"TransposedLinear", {"out_features: 4"}},
      {"ScaledDotProductAttention", {"num_heads: 2", {2, 5, 4}, at::kFloat, "[x, x, x]"}},
      {"RotaryEmbedding", {"head_dim: 4", {2, 5, 8}}},
      {"PositionIds", {"", {2, 5}, at::kLong}},
      {"TorchScript", {"path: " + saved_script()}},
      {"Sequential", {"layers: [ReLU]"}},
      {"Residual", {"main: [ReLU]"}},
      {"Parallel", {"layers: [ReLU, [Identity, ReLU]]"}},
  };
  add_examples_of_dims(examples);
  examples["AdaptiveAvgPool2d"].parameters = "output_size: 3";
  for (const std::string& name : language_models()) examples[name] = {"", {2, 5}, at::kLong};
  for (const std::string& name : whole_models()) {
    examples[name] = {name == "UNet" ? "num_classes: 3" : "num_classes: 5", {2, 3, 32, 32}};
  }
  return examples;
}

const std::map<std::string, ComponentExample>& layer_examples() {
  static const std::map<std::string, ComponentExample> examples = make_layer_examples();
  return examples;
}

Tensors alike(size_t count) { return Tensors(count, torch::zeros({2, 3})); }
Tensors classes() { return {torch::zeros({2, 3}), torch::zeros({2}, at::kLong)}; }
LayerInputs inputs_of(const Tensors& tensors) {
  LayerInputs inputs;
  inputs.examples = tensors;
  return inputs;
}

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
      {"MarginRankingLoss", alike(3)},
      {"TripletMarginLoss", alike(3)},
      {"CosineEmbeddingLoss", {torch::zeros({2, 3}), torch::zeros({2, 3}), torch::ones({2})}},
      {"CTCLoss", {torch::zeros({5, 2, 3}), torch::ones({2, 2}, at::kLong), lengths, lengths}},
      {"OutputLoss", alike(1)},
      {"DPOLoss",
       {torch::zeros({4, 5, 3}), torch::zeros({2, 5}, at::kLong), torch::zeros({2, 5}, at::kLong),
        torch::zeros({4, 5, 3})}},
  };
  return examples;
}

/// What a metric reads, where that is not an output and a class for each sample.
const std::map<std::string, Tensors>& metric_examples() {
  static const std::map<std::string, Tensors> examples = {
      {"MSE", alike(2)},
      {"RMSE", alike(2)},
      {"MAE", alike(2)},
      {"R2", alike(2)},
      {"PearsonCorr", alike(2)},
      {"SpearmanCorr", alike(2)},
      {"TripletAccuracy", alike(3)},
      {"CTCErrorRate", {torch::zeros({5, 2, 3}), torch::ones({2, 2}, at::kLong), torch::full({2}, 2, at::kLong)}},
      {"PreferenceRewards",
       {torch::zeros({4, 5, 3}), torch::zeros({2, 5}, at::kLong), torch::zeros({2, 5}, at::kLong),
        torch::zeros({4, 5, 3})}},
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
      {"GLUE", "root: data, task: SST-2, split: train, tokenizer: t"},
      {"MRPC", "root: data, split: train, tokenizer: t"},
      {"PreferencePairs", "path: p.jsonl, tokenizer: t"},
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

/// The layer with what its example says of it, and the layers before it.
LayerList list_of(const std::string& name, const ComponentExample& example) {
  return read<LayerList>("[" + example.before + (example.before.empty() ? "" : ", ") + "{type: " + name +
                             (example.parameters.empty() ? "" : ", " + example.parameters) +
                             (example.inputs.empty() ? "" : ", inputs: " + example.inputs) + "}]",
                         catalog());
}

template <class Kind>
Component<Kind> component(const std::string& name, const std::string& parameters) {
  return read<Component<Kind>>("{type: " + name + (parameters.empty() ? "" : ", " + parameters) + "}", catalog());
}

}  // namespace

TEST_CASE("every layer of the catalog is built, runs and trains") {
  for (const auto& item : catalog().layers.entries()) {
    const std::string& name = item.first;
    if (is_large(name)) continue;
    CAPTURE(name);
    const auto known = layer_examples().find(name);
    const ComponentExample example = known == layer_examples().end() ? ComponentExample{} : known->second;
    const auto layers = list_of(name, example);
    auto x = torch::ones(example.shape, example.dtype);
    const auto graph = build_graph(layers, inputs_like(x));
    if (example.dtype == at::kFloat) x.requires_grad_();
    const Tensors outputs = graph->forward({x});
    CHECK(outputs[0].sizes() == at::IntArrayRef(graph->nodes().back().output_shapes[0]));
    if (!at::isFloatingType(outputs[0].scalar_type())) continue;  // positions
    outputs[0].sum().backward();
    for (const auto& parameter : graph->named_parameters()) {
      if (parameter.key().find(".tail.") != std::string::npos) continue;  // of classes that no target is of
      CAPTURE(parameter.key());
      CHECK(parameter.value().grad().defined());
    }
  }
}

TEST_CASE("no layer does more to its inputs' memory and to the random numbers than its operation's traits say") {
  const auto generator_state = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  PlanOptions options;
  options.measure = [&](const PlanStep& step) {
    return operation_of([&, step](const Tensors& inputs) {
      CAPTURE(step.name.type);
      std::vector<uint32_t> versions;
      for (const at::Tensor& input : inputs) versions.push_back(input._version());
      const at::Tensor state = generator_state();
      Tensors outputs = step.operation->run(inputs);
      const Operation::Traits traits = step.operation->traits();
      if (!traits.random) CHECK(state.equal(generator_state()));
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!traits.in_place) CHECK(inputs[i]._version() == versions[i]);
        for (const at::Tensor& output : outputs) {
          if (!traits.view) CHECK_FALSE(output.is_alias_of(inputs[i]));
        }
      }
      return outputs;
    });
  };
  for (const auto& item : catalog().layers.entries()) {
    const std::string& name = item.first;
    if (is_large(name)) continue;
    const auto known = layer_examples().find(name);
    ComponentExample example = known == layer_examples().end() ? ComponentExample{} : known->second;
    const auto has = [&](const std::string& parameter) {
      const std::vector<Parameter>& own = item.second.parameters;
      return std::any_of(own.begin(), own.end(), [&](const Parameter& one) { return one.name == parameter; });
    };
    for (const bool in_place : {false, true}) {
      if (in_place && !has("inplace")) continue;
      if (in_place) example.parameters += (example.parameters.empty() ? "" : ", ") + std::string("inplace: true");
      const auto graph = build_graph(list_of(name, example), inputs_like(torch::ones(example.shape, example.dtype)));
      for (const bool training : {true, false}) {
        graph->train(training);
        make_plan(*graph, options).run({torch::ones(example.shape, example.dtype)});
      }
    }
  }
}

TEST_CASE(
    "layers whose operations are pointwise or position-wise are so, and those with a half-precision form have one") {
  const c10::AutoGradMode no_gradients(false);
  std::map<std::string, int> kept;
  PlanOptions options;
  options.measure = [&](const PlanStep& step) {
    return operation_of([&, step](const Tensors& inputs) {
      CAPTURE(step.name.type);
      const Operation::Traits traits = step.operation->traits();
      const Tensors outputs = step.operation->run(inputs);
      const auto follows = [&](const std::string& trait, const auto& change) {
        ++kept[trait];
        Tensors changed;
        for (const at::Tensor& input : inputs) changed.push_back(change(input));
        CHECK(step.operation->run(changed)[0].allclose(change(outputs[0]), 1e-5, 1e-6, /*equal_nan=*/true));
      };
      if (traits.pointwise) {
        CHECK(traits.position_wise);
        follows("pointwise", [](const at::Tensor& x) { return x.flatten().flip(0).view_as(x); });
      }
      if (traits.position_wise) follows("position-wise", [](const at::Tensor& x) { return x.slice(1, 1); });
      return outputs;
    });
  };
  for (const auto& item : catalog().layers.entries()) {
    if (is_large(item.first)) continue;
    CAPTURE(item.first);
    const auto known = layer_examples().find(item.first);
    const ComponentExample example = known == layer_examples().end() ? ComponentExample{} : known->second;
    // Numbers that bfloat16 holds, so that none of them lies on another side of a threshold there.
    const at::Tensor x = example.dtype == at::kFloat ? at::rand(example.shape).to(at::kBFloat16).to(at::kFloat)
                                                     : at::ones(example.shape, example.dtype);
    const auto graph = build_graph(list_of(item.first, example), inputs_like(x));
    graph->eval();
    const Plan plan = make_plan(*graph, options);
    plan.run({x});
    const auto is_half = [](const PlanStep& step) { return step.operation->traits().half_precision; };
    const Plan plain = make_plan(*graph);
    if (!std::all_of(plain.steps.begin(), plain.steps.end(), is_half)) continue;
    ++kept["half"];
    const at::Tensor exact = plain.run({x})[0];
    graph->to(at::kBFloat16);
    const at::Tensor half = plain.run({x.is_floating_point() ? x.to(at::kBFloat16) : x})[0];
    if (!exact.is_floating_point()) continue;  // positions
    const bool stays_half = half.scalar_type() == at::kBFloat16;
    CHECK(stays_half);
    CHECK(half.to(at::kFloat).allclose(exact, 0.1, 0.05, /*equal_nan=*/true));
  }
  CHECK(kept["pointwise"] > 30);
  CHECK(kept["position-wise"] > kept["pointwise"]);
  CHECK(kept["half"] > 80);
}

TEST_CASE("the shape mode computes nothing for any layer or loss") {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): what is counted grows
  const std::map<std::string, int64_t> before = ShapeMode::computed();
  const auto newly_computed = [&] {
    std::vector<std::string> operations;
    for (const auto& [operation, bytes] : ShapeMode::computed()) {
      const auto known = before.find(operation);
      if (bytes > (known == before.end() ? 0 : known->second)) operations.push_back(operation);
    }
    return join(operations);
  };
  for (const auto& item : catalog().layers.entries()) {
    CAPTURE(item.first);
    const auto known = layer_examples().find(item.first);
    const ComponentExample example = known == layer_examples().end() ? ComponentExample{} : known->second;
    const ShapeMode shapes;
    build_graph(list_of(item.first, example), inputs_like(torch::empty(example.shape, example.dtype)));
    REQUIRE(newly_computed() == "");
  }
  for (const char* loss : {"CrossEntropyLoss", "NLLLoss", "MSELoss", "BCEWithLogitsLoss"}) {
    CAPTURE(loss);
    const ShapeMode shapes;
    const bool has_classes = std::string(loss) == "CrossEntropyLoss" || std::string(loss) == "NLLLoss";
    const auto target = has_classes ? torch::empty({2, 7}, at::kLong) : torch::empty({2, 5, 7});
    const LayerInputs inputs = inputs_of({torch::empty({2, 5, 7}), target});  // [N, C, T]
    CHECK(component<LossKind>(loss, "").build(inputs).forward(inputs.examples).numel() == 1);
    CHECK(newly_computed() == "");
  }
}

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
