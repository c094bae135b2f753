#include <torch/torch.h>

#include "registry/graph/flatten.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

const at::Tensor kTarget = torch::zeros({2, 5, 8});  // [N, T, C]
const at::Tensor kMemory = torch::zeros({2, 6, 8});
const at::Tensor kPadding = torch::zeros({2, 5}, at::kBool);
const at::Tensor kMemoryPadding = torch::zeros({2, 6}, at::kBool);

/// `layers`: a list in YAML; `examples`: of its inputs, which are called w, x, y and z.
std::shared_ptr<Graph> build_layers(const std::string& layers, const Tensors& examples) {
  LayerInputs inputs;
  for (const at::Tensor& example : examples) {
    inputs.names.emplace_back(1, static_cast<char>('w' + inputs.examples.size()));
    inputs.examples.push_back(example.to(at::kMeta));
  }
  return build(layers, inputs);
}

/// "encoder.norm1 LayerNorm" of each layer that computes, in their order.
Strings leaves_of(const FlatGraph& flat) {
  Strings leaves;
  for (const FlatLayer& layer : flat.layers) {
    if (layer.is_leaf()) leaves.push_back(layer.name + " " + layer.node->type);
  }
  return leaves;
}

const FlatLayer& find(const FlatGraph& flat, const std::string& name) {
  for (const FlatLayer& layer : flat.layers) {
    if (layer.name == name) return layer;
  }
  FAIL("no layer is called " << name);
  return flat.layers[0];
}

Strings parameter_names(const Graph& graph) {
  Strings names;
  for (const auto& item : graph.named_parameters()) names.push_back(item.key());
  return names;
}

/// The initial values of one layer, as LibTorch's own modules draw them one after the other.
std::vector<at::Tensor> drawn_in_turn(int64_t num_attentions) {
  std::vector<at::Tensor> drawn;
  const auto add = [&](const torch::nn::Module& module) {
    for (const at::Tensor& parameter : module.parameters()) drawn.push_back(parameter);
  };
  for (int64_t i = 0; i < num_attentions; ++i) {
    const torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
    for (const char* name : {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}) {
      drawn.push_back(attention->named_parameters()[name]);
    }
  }
  add(*torch::nn::Linear(8, 12));
  add(*torch::nn::Linear(12, 8));
  for (int64_t i = 0; i < num_attentions + 1; ++i) add(*torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  return drawn;
}

}  // namespace

TEST_CASE("a Transformer's layer is a graph of registered layers, in the order in which they compute") {
  const auto graph = build_layers(
      "[{type: TransformerEncoderLayer, nhead: 2, dim_feedforward: 12, batch_first: true, dropout: 0.2, name: "
      "encoder}]",
      {kTarget});
  const FlatGraph flat = flatten(*graph);
  CHECK(leaves_of(flat) == Strings{"encoder.self_attn MultiheadAttention", "encoder.dropout1 Dropout",
                                   "encoder.add1 Add", "encoder.norm1 LayerNorm", "encoder.linear1 Linear",
                                   "encoder.activation ReLU", "encoder.dropout Dropout", "encoder.linear2 Linear",
                                   "encoder.dropout2 Dropout", "encoder.add2 Add", "encoder.norm2 LayerNorm"});
  for (const FlatLayer& layer : flat.layers) {
    CAPTURE(layer.name);
    CHECK(layer.written->type == "TransformerEncoderLayer");
    CHECK(layer.node->is_written == (layer.name == "encoder"));
  }
  const auto attributes = [&](const std::string& part) { return find(flat, "encoder." + part).node->attributes; };
  CHECK(attributes("self_attn") ==
        nlohmann::json::parse(R"({"num_heads": 2, "dropout": 0.2, "bias": true, "add_bias_kv": false,
                                  "add_zero_attn": false, "kdim": null, "vdim": null, "batch_first": true,
                                  "is_causal": false, "embed_dim": null})"));
  CHECK(attributes("linear1") == nlohmann::json{{"out_features", 12}, {"bias", true}, {"in_features", nullptr}});
  CHECK(attributes("linear2").at("out_features") == 8);
  CHECK(attributes("dropout") == nlohmann::json{{"p", 0.2}, {"inplace", false}});
  CHECK(attributes("norm2").at("eps") == 1e-5);
  CHECK(attributes("add1") == nlohmann::json{{"other", nullptr}});
  CHECK(find(flat, "encoder.activation").node->input_shapes[0] == std::vector<int64_t>{2, 5, 12});
  CHECK(find(flat, "encoder.linear2").node->output_shapes[0] == std::vector<int64_t>{2, 5, 8});
  CHECK(find(flat, "encoder.norm2").outputs == flat.outputs);
}

TEST_CASE("a Transformer's parts have the options of their layer") {
  const auto graph = build_layers(
      "[{type: TransformerEncoderLayer, nhead: 2, activation: gelu, norm_first: true, bias: false, "
      "is_causal: true, layer_norm_eps: 1e-3, name: encoder}]",
      {kTarget});
  const FlatGraph flat = flatten(*graph);
  CHECK(leaves_of(flat) == Strings{"encoder.norm1 LayerNorm", "encoder.self_attn MultiheadAttention",
                                   "encoder.dropout1 Dropout", "encoder.add1 Add", "encoder.norm2 LayerNorm",
                                   "encoder.linear1 Linear", "encoder.activation GELU", "encoder.dropout Dropout",
                                   "encoder.linear2 Linear", "encoder.dropout2 Dropout", "encoder.add2 Add"});
  CHECK(find(flat, "encoder.self_attn").inputs == find(flat, "encoder.norm1").outputs);
  CHECK(find(flat, "encoder.self_attn").node->attributes.at("is_causal") == true);
  CHECK(find(flat, "encoder.activation").node->attributes == nlohmann::json{{"approximate", "none"}});
  CHECK(find(flat, "encoder.norm1").node->attributes.at("eps") == 1e-3);
  for (const char* part : {"self_attn", "linear1", "linear2", "norm1", "norm2"}) {
    CAPTURE(part);
    CHECK(find(flat, std::string("encoder.") + part).node->attributes.at("bias") == false);
  }
  CHECK(parameter_names(*graph) == Strings{"encoder.self_attn.in_proj_weight", "encoder.self_attn.out_proj.weight",
                                           "encoder.linear1.weight", "encoder.linear2.weight", "encoder.norm1.weight",
                                           "encoder.norm2.weight"});
}

TEST_CASE("a stack's layers are registered layers, too, and all of them read the memory and the masks") {
  const auto graph = build_layers(
      "[{type: TransformerDecoder, nhead: 2, num_layers: 2, norm: true, batch_first: true, memory_is_causal: true, "
      "name: decoder, inputs: [w, x, y, z]}]",
      {kTarget, kMemory, kPadding, kMemoryPadding});
  const FlatGraph flat = flatten(*graph);
  Strings expected;
  for (const std::string layer : {"decoder.layers.0.", "decoder.layers.1."}) {
    for (const std::string leaf :
         {"self_attn MultiheadAttention", "dropout1 Dropout", "add1 Add", "norm1 LayerNorm",
          "multihead_attn MultiheadAttention", "dropout2 Dropout", "add2 Add", "norm2 LayerNorm", "linear1 Linear",
          "activation ReLU", "dropout Dropout", "linear2 Linear", "dropout3 Dropout", "add3 Add", "norm3 LayerNorm"}) {
      expected.push_back(layer + leaf);
    }
  }
  expected.emplace_back("decoder.norm LayerNorm");
  CHECK(leaves_of(flat) == expected);
  const FlatLayer& second = find(flat, "decoder.layers.1");
  CHECK(second.node->type == "TransformerDecoderLayer");
  CHECK(second.node->attributes.at("nhead") == 2);
  CHECK(second.node->attributes.at("memory_is_causal") == true);
  CHECK_FALSE(second.node->attributes.contains("num_layers"));
  CHECK(find(flat, "decoder.layers").node->attributes.at("layers").size() == 2);
  const size_t x = find(flat, "decoder.layers.0.norm3").outputs[0];
  const size_t y = find(flat, "decoder.layers.1.norm1").outputs[0];
  CHECK(second.inputs == std::vector<size_t>{x, 1, 2, 3});
  CHECK(find(flat, "decoder.layers.1.self_attn").inputs == std::vector<size_t>{x, x, x, 2});
  CHECK(find(flat, "decoder.layers.1.multihead_attn").inputs == std::vector<size_t>{y, 1, 1, 3});
  CHECK(find(flat, "decoder.norm").outputs == flat.outputs);
}

TEST_CASE("a Transformer's weights are named and drawn in PyTorch's order, not in that in which its parts compute") {
  for (const bool is_decoder : {false, true}) {
    const std::string kind = is_decoder ? "Decoder" : "Encoder";
    const std::string inputs = is_decoder ? ", inputs: [w, x]" : ", inputs: [w]";
    CAPTURE(kind);
    torch::manual_seed(7);
    const std::vector<at::Tensor> drawn = drawn_in_turn(is_decoder ? 2 : 1);
    const at::Tensor next = torch::rand({4});
    Strings names;
    for (const std::string part : {"self_attn", "multihead_attn"}) {
      if (part == "multihead_attn" && !is_decoder) continue;
      for (const char* parameter : {".in_proj_weight", ".in_proj_bias", ".out_proj.weight", ".out_proj.bias"}) {
        names.push_back(part + parameter);
      }
    }
    for (const std::string part : {"linear1", "linear2", "norm1", "norm2", "norm3"}) {
      if (part == "norm3" && !is_decoder) continue;
      for (const char* parameter : {".weight", ".bias"}) names.push_back(part + parameter);
    }
    REQUIRE(names.size() == drawn.size());
    for (const std::string norm_first : {"true", "false"}) {
      torch::manual_seed(7);
      const std::string options =
          ", nhead: 2, batch_first: true, dim_feedforward: 12, norm_first: " + norm_first + ", name: own";
      const auto layer =
          build_layers("[{type: Transformer" + kind + "Layer" + options + inputs + "}]", {kTarget, kMemory});
      CHECK(torch::rand({4}).equal(next));
      torch::manual_seed(7);
      const auto stack =
          build_layers("[{type: Transformer" + kind + ", num_layers: 3" + options + inputs + "}]", {kTarget, kMemory});
      CHECK(torch::rand({4}).equal(next));  // the generator is where the first layer left it
      const auto of_layer = layer->named_parameters();
      const auto of_stack = stack->named_parameters();
      REQUIRE(of_layer.size() == names.size());
      REQUIRE(of_stack.size() == 3 * names.size());
      for (size_t i = 0; i < of_stack.size(); ++i) {
        const std::string& name = names[i % names.size()];
        CAPTURE(name);
        CHECK(of_stack[i].key() == "own.layers." + std::to_string(i / names.size()) + "." + name);
        CHECK(of_stack[i].value().equal(drawn[i % names.size()]));
        if (i >= names.size()) continue;
        CHECK(of_layer[i].key() == "own." + name);
        CHECK(of_layer[i].value().equal(drawn[i]));
      }
    }
  }
}

TEST_CASE("a Transformer's dropouts know training from evaluation") {
  const auto graph =
      build_layers("[{type: TransformerEncoder, nhead: 2, num_layers: 2, dropout: 0.5, batch_first: true}]", {kTarget});
  const auto x = torch::randn({2, 5, 8});
  const auto dropped = [](const at::Tensor& t) { return (t == 0).any().item<bool>(); };
  std::map<std::string, bool> zeroes;  // by layer
  const auto run = [&] {
    zeroes.clear();
    const FlatGraph flat = flatten(*graph);
    Tensors slots(flat.num_slots);
    slots[0] = x;
    for (const FlatLayer& layer : flat.layers) {
      if (!layer.is_leaf()) continue;
      Tensors inputs;
      for (const size_t slot : layer.inputs) inputs.push_back(slots[slot]);
      slots[layer.outputs[0]] = layer.node->layer.operation->run(inputs)[0];
      if (layer.node->type == "Dropout" && !layer.name.ends_with(".dropout")) {
        zeroes[layer.name] = dropped(slots[layer.outputs[0]]);
      }
    }
    return slots[flat.outputs[0]];
  };
  torch::manual_seed(1);
  const at::Tensor trained = run();
  CHECK(zeroes.size() == 4);
  for (const auto& one : zeroes) CHECK_MESSAGE(one.second, one.first);
  torch::manual_seed(1);
  CHECK(graph->forward({x})[0].equal(trained));  // the plan draws in the same order
  graph->eval();
  const at::Tensor evaluated = run();
  for (const auto& one : zeroes) CHECK_MESSAGE(!one.second, one.first);
  CHECK(graph->forward({x})[0].equal(evaluated));
}

TEST_CASE("a Transformer's layer that is shared may read a mask in one place and none in the other") {
  torch::manual_seed(2);
  const std::string own = "type: TransformerEncoderLayer, nhead: 2, batch_first: true, dropout: 0";
  const std::string first = "[{" + own + ", name: a, inputs: [w]}, {" + own +
                            ", share: a, inputs: [w, x], name: b}, {" + own + ", share: b, inputs: [w], name: c}]";
  const auto graph = build_layers(first, {kTarget, kPadding});
  auto parameters = graph->named_parameters();
  CHECK(parameters["b.linear1.weight"].is_same(parameters["a.linear1.weight"]));
  const auto x = torch::randn({2, 5, 8});
  const auto padding = torch::tensor({{0, 0, 0, 1, 1}, {0, 0, 0, 0, 0}}, at::kBool);
  graph->set_outputs({*graph->slot("a"), *graph->slot("b"), *graph->slot("c")});
  const Tensors outputs = graph->forward({x, padding});
  CHECK(outputs[2].equal(outputs[0]));
  CHECK_FALSE(outputs[1][0].equal(outputs[0][0]));
  CHECK(outputs[1][1].allclose(outputs[0][1]));  // nothing of it is padding
}

TEST_CASE("a Transformer's part is not a layer of the recipe that others may share") {
  CHECK_THROWS_WITH_AS(build_layers("[{type: TransformerEncoderLayer, nhead: 2, dim_feedforward: 8, name: a}, "
                                    "{type: Linear, out_features: 8, share: a.linear1}]",
                                    {kTarget}),
                       doctest::Contains("no earlier layer is called 'a.linear1'"), RecipeError);
}
