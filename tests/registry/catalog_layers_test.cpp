#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "registry/graph/passes.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/catalog_support.h"
#include "tests/sanitizers.h"
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
                                              "DistilBertForMaskedLM",
                                              "DistilBertForSequenceClassification",
                                              "DistilBertForTokenClassification",
                                              "DistilBertModel",
                                              "GPT2LMHeadModel",
                                              "GPT2Model",
                                              "LlamaForCausalLM",
                                              "LlamaForSequenceClassification",
                                              "MistralForCausalLM",
                                              "MistralForSequenceClassification",
                                              "Qwen2ForCausalLM",
                                              "Qwen2ForSequenceClassification",
                                              "Qwen3ForCausalLM",
                                              "Qwen3ForSequenceClassification",
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

/// The config.json of a small BERT, which is there as long as the program runs.
std::string encoder_config() {
  static const TemporaryFolder folder;
  const std::string path = folder / "config.json";
  std::ofstream(path) << R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1,
                             "num_attention_heads": 2, "intermediate_size": 4})";
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
      {"TokenPooling", {"", {2, 5, 4}, at::kFloat, "[x, mask]", "{type: Select, dim: 2, index: 0, outputs: [mask]}"}},
      {"SentenceTransformer", {"config: " + encoder_config(), {2, 5}, at::kLong, "[x, x]"}},
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
      {"LastToken", {"", {2, 5, 4}}},
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

/// The layer with what its example says of it, and the layers before it.
LayerList list_of(const std::string& name, const ComponentExample& example) {
  return read<LayerList>("[" + example.before + (example.before.empty() ? "" : ", ") + "{type: " + name +
                             (example.parameters.empty() ? "" : ", " + example.parameters) +
                             (example.inputs.empty() ? "" : ", inputs: " + example.inputs) + "}]",
                         catalog());
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
    torch::manual_seed(5);  // some draws round further apart
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
    if (test::kIsSanitized && is_large(item.first)) continue;  // whole models are made of the other layers
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
