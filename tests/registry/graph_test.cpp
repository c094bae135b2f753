#include <torch/torch.h>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "registry/tensors/out_of_memory.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

std::vector<std::string> state_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& item : graph.named_parameters()) names.push_back(item.key());
  return names;
}

}  // namespace

TEST_CASE("sizes follow from what flows in, and state names are those of torch.nn.Sequential") {
  const auto graph = build(R"(
- {type: Conv2d, out_channels: 8, kernel_size: 3}
- ReLU
- {type: MaxPool2d, kernel_size: 2}
- Flatten
- {type: Linear, out_features: 10, name: head}
)",
                           inputs_like(torch::zeros({2, 1, 28, 28})));
  CHECK(state_names(*graph) == std::vector<std::string>{"0.weight", "0.bias", "head.weight", "head.bias"});
  CHECK(graph->named_parameters()["head.weight"].sizes() == at::IntArrayRef({10, 8LL * 13 * 13}));
  CHECK(graph->forward({torch::zeros({5, 1, 28, 28})})[0].sizes() == at::IntArrayRef({5, 10}));
  CHECK(graph->nodes()[0].output_shapes[0] == std::vector<int64_t>{2, 8, 26, 26});
  const ShapeMode shapes;
  const int64_t before = ShapeMode::flops();
  graph->forward({torch::zeros({2, 1, 28, 28})});
  CHECK(ShapeMode::flops() - before == 2LL * 2 * 26 * 26 * 8 * 9 + 2LL * 2 * 10 * 8 * 13 * 13);
}

TEST_CASE("a graph computes what the same modules of LibTorch compute, from the same seed") {
  torch::manual_seed(7);
  const auto graph = build("[{type: Linear, out_features: 6}, GELU, {type: Linear, out_features: 2}]",
                           inputs_like(torch::zeros({2, 4})));
  torch::manual_seed(7);
  torch::nn::Sequential expected;
  expected->push_back(torch::nn::Linear(4, 6));
  expected->push_back(torch::nn::GELU());
  expected->push_back(torch::nn::Linear(6, 2));
  const auto x = torch::randn({3, 4});
  CHECK(graph->forward({x})[0].equal(expected->forward(x)));
}

TEST_CASE("finding shapes leaves the random generator as it was") {
  torch::manual_seed(3);
  const auto before = torch::rand({1}).item<float>();
  torch::manual_seed(3);
  {
    const ShapeMode shapes;
    build("[{type: Linear, out_features: 6}, Dropout]", inputs_like(torch::zeros({2, 4})));
  }
  CHECK(torch::rand({1}).item<float>() == before);
}

TEST_CASE("a model too large for any machine has shapes all the same") {
  const ShapeMode shapes;
  const auto graph = build("[{type: Linear, out_features: 10000000}, {type: Linear, out_features: 1000000}]",
                           inputs_like(torch::empty({2, 4}, at::kMeta)));
  CHECK(graph->nodes()[1].output_shapes[0] == std::vector<int64_t>{2, 1000000});
  CHECK(graph->parameters()[2].numel() == 10000000LL * 1000000);
}

TEST_CASE("named inputs join branches; a name is an earlier layer, an output of one, or a field of the batch") {
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: a}
- {type: Linear, out_features: 4, inputs: x, name: b}
- {type: Add, inputs: [a, b]}
- {type: Concat, inputs: [a, b, x]}
)",
                           inputs_like(torch::zeros({2, 3})));
  CHECK(graph->nodes()[3].output_shapes[0] == std::vector<int64_t>{2, 11});
  const auto x = torch::randn({2, 3});
  const auto state = graph->named_parameters();
  const auto a = torch::linear(x, state["a.weight"], state["a.bias"]);
  const auto b = torch::linear(x, state["b.weight"], state["b.bias"]);
  CHECK(graph->forward({x})[0].equal(torch::cat({a, b, x}, 1)));
}

TEST_CASE("an LSTM has three outputs, and the next layer reads the first") {
  const auto graph = build(R"(
- {type: LSTM, hidden_size: 5, batch_first: true, outputs: [sequence, last, cell]}
- {type: Select, dim: 1, index: -1}
- {type: Select, dim: 0, index: 0, inputs: last, name: h}
- {type: Add, inputs: ['1', h]}
)",
                           inputs_like(torch::zeros({2, 7, 3})));
  CHECK(graph->nodes()[0].output_shapes == std::vector<std::vector<int64_t>>{{2, 7, 5}, {1, 2, 5}, {1, 2, 5}});
  const auto x = torch::randn({2, 7, 3});
  graph->set_outputs({*graph->slot("1"), *graph->slot("h")});
  const Tensors outputs = graph->forward({x});
  CHECK(outputs[0].allclose(outputs[1]));
}

TEST_CASE("containers nest their names") {
  const auto graph = build(R"(
- type: Residual
  name: block
  main: [{type: Linear, out_features: 3}, ReLU, {type: Linear, out_features: 3, name: last}]
- type: Parallel
  layers:
    - {type: Linear, out_features: 2}
    - [{type: Linear, out_features: 5}, ReLU]
- {type: Sequential, layers: [{type: Linear, out_features: 1}]}
)",
                           inputs_like(torch::zeros({2, 3})));
  CHECK(state_names(*graph) == std::vector<std::string>{"block.main.0.weight", "block.main.0.bias",
                                                        "block.main.last.weight", "block.main.last.bias",
                                                        "1.0.0.weight", "1.0.0.bias", "1.1.0.weight", "1.1.0.bias",
                                                        "2.0.weight", "2.0.bias"});
  CHECK(graph->nodes()[1].output_shapes[0] == std::vector<int64_t>{2, 7});
}

TEST_CASE("the scales of the learning rate of nested layers are multiplied") {
  const auto graph = build(R"(
- {type: Linear, out_features: 3}
- type: Sequential
  name: s
  lr_scale: 0.5
  layers:
    - {type: Linear, out_features: 3, bias: false, lr_scale: 0.2}
    - {type: Linear, out_features: 2, bias: false}
)",
                           inputs_like(torch::zeros({2, 4})));
  CHECK(graph->lr_scales() == std::map<std::string, double>{{"s.0.weight", 0.5 * 0.2}, {"s.1.weight", 0.5}});
}

TEST_CASE("layers inside a container may read names from outside it") {
  const auto graph = build(R"(
- {type: Linear, out_features: 3, name: skip}
- {type: Linear, out_features: 5}
- type: Sequential
  layers:
    - {type: Linear, out_features: 3}
    - type: Sequential
      layers: [{type: Identity, name: inner}, {type: Add, inputs: [inner, skip]}]
)",
                           inputs_like(torch::zeros({2, 4})));
  const auto x = torch::randn({2, 4});
  const auto p = graph->named_parameters();
  const auto skip = torch::linear(x, p["skip.weight"], p["skip.bias"]);
  const auto h = torch::linear(torch::linear(skip, p["1.weight"], p["1.bias"]), p["2.0.weight"], p["2.0.bias"]);
  CHECK(graph->forward({x})[0].allclose(h + skip));
}

TEST_CASE("repeat makes layers one after the other; under a name they are a list of that name") {
  const auto graph = build(R"(
- {type: Linear, out_features: 3, repeat: 2}
- {type: Linear, out_features: 3, repeat: 2, name: stack}
- {type: Linear, out_features: 1}
)",
                           inputs_like(torch::zeros({2, 4})));
  CHECK(state_names(*graph) == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "stack.0.weight",
                                                        "stack.0.bias", "stack.1.weight", "stack.1.bias", "3.weight",
                                                        "3.bias"});
}

TEST_CASE("a layer that shares another's parameters has the very same ones") {
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: tower}
- ReLU
- {type: Linear, out_features: 4, name: again, share: tower}
)",
                           inputs_like(torch::zeros({2, 4})));
  auto parameters = graph->named_parameters();
  CHECK(parameters["again.weight"].is_same(parameters["tower.weight"]));
  CHECK(parameters["again.bias"].is_same(parameters["tower.bias"]));
  const auto x = torch::rand({3, 4});
  const auto w = parameters["tower.weight"].detach().clone().requires_grad_();
  const auto b = parameters["tower.bias"].detach().clone().requires_grad_();
  namespace functional = torch::nn::functional;
  functional::linear(functional::linear(x, w, b).relu(), w, b).sum().backward();
  graph->forward({x})[0].sum().backward();
  CHECK(torch::allclose(parameters["tower.weight"].grad(), w.grad()));
  CHECK(torch::allclose(parameters["again.bias"].grad(), b.grad()));
}

TEST_CASE("an output layer shares the weight of the embedding") {
  LayerInputs tokens = inputs_like(torch::zeros({2, 5}, at::kLong));
  const auto graph = build(R"(
- {type: Embedding, num_embeddings: 7, embedding_dim: 4, name: tokens}
- {type: Linear, out_features: 7, bias: false, share: tokens, name: head}
)",
                           tokens);
  auto parameters = graph->named_parameters();
  CHECK(parameters["head.weight"].is_same(parameters["tokens.weight"]));
  const auto x = torch::randint(7, {3, 5}, at::kLong);
  const auto w = parameters["tokens.weight"].detach().clone().requires_grad_();
  torch::matmul(torch::embedding(w, x), w.t()).square().sum().backward();
  const auto logits = graph->forward({x})[0];
  logits.square().sum().backward();
  CHECK(torch::allclose(parameters["head.weight"].grad(), w.grad(), 1e-4, 1e-5));
  CHECK(
      fault("- {type: Linear, out_features: 3, name: a}\n- {type: Linear, out_features: 5, share: a}",
            inputs_like(torch::zeros({2, 4}))) ==
      "test.yaml:2:42: [1].share: the parameters of Linear (bias [5], weight [5, 3]) are not like those of Linear 'a' "
      "(bias [3], weight [3, 4])");
  CHECK(fault("- {type: Linear, out_features: 3, name: tower}\n- {type: Linear, out_features: 5, share: towr}",
              inputs_like(torch::zeros({2, 4}))) ==
        "test.yaml:2:42: [1].share: no earlier layer is called 'towr'; did you mean tower?");
}

TEST_CASE("what does not fit names layers, shapes and places") {
  const auto image = inputs_like(torch::zeros({2, 1, 28, 28}), "image");
  CHECK(fault("- Flatten\n- {type: Linear, out_features: 10, in_features: 100}", image) ==
        "test.yaml:2:3: [1]: Linear does not fit its input [N, 784] from [0] (Flatten, test.yaml:1:3): "
        "in_features is 100, but the input has 784");
  CHECK(fault("- {type: Conv2d, out_channels: 4, kernel_size: 30}", image) ==
        "test.yaml:1:3: [0]: Conv2d does not fit its input [N, 1, 28, 28] from 'image': "
        "a window of 30 does not fit an input of 28 with a padding of 0");
  CHECK(
      fault("- {type: Add, inputs: [image, imagge]}", image) ==
      "test.yaml:1:31: [0].inputs: no earlier layer and no field of the batch is called 'imagge'; did you mean image?");
  CHECK(fault("- {type: LSTM, hidden_size: 3}", image).find("it needs [T, N, C], not [N, 1, 28, 28]") !=
        std::string::npos);
  CHECK(fault("- {type: Flatten, outputs: [a, b]}", image) ==
        "test.yaml:1:28: [0].outputs: Flatten has 1 output, but outputs names 2");
  CHECK(fault("- {type: Residual, main: [{type: Conv2d, out_channels: 2, kernel_size: 3}]}", image)
            .find("main gives [N, 2, 26, 26], shortcut gives [N, 1, 28, 28]") != std::string::npos);
  CHECK(fault("- {type: Embedding, num_embeddings: 3, embedding_dim: 2}", image).find("integer indices") !=
        std::string::npos);
}

TEST_CASE("too little memory is no fault of the recipe") {
  CHECK_THROWS_AS(build("[{type: Linear, out_features: 200000000000000}]", inputs_like(torch::zeros({2, 4}))),
                  OutOfMemory);
  try {
    build("[{type: Sequential, name: big, layers: [{type: Linear, out_features: 200000000000000}]}]",
          inputs_like(torch::zeros({2, 4})));
  } catch (const OutOfMemory& error) {
    CHECK(std::string(error.what()) ==
          "test.yaml:1:41: [0].layers[0]: this machine has too little memory for it (3200000000000000 bytes were asked "
          "for)");
  }
}

TEST_CASE("a free parameter has the layer's own name and is repeated for each sample where it stands for one") {
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: tokens}
- {type: Parameter, shape: [1, 1, 4], name: cls_token, init: {type: Constant, val: 0.5}, lr_scale: 0.1}
- {type: Concat, inputs: [cls_token, tokens], name: sequence}
- {type: Parameter, shape: [4], name: gamma, init: {type: Constant, val: 2}}
- {type: Mul, inputs: [sequence, gamma]}
)",
                           inputs_like(torch::zeros({2, 5, 3})));
  CHECK(state_names(*graph) == std::vector<std::string>{"cls_token", "gamma", "tokens.weight", "tokens.bias"});
  CHECK(graph->lr_scales() == std::map<std::string, double>{{"cls_token", 0.1}});
  const Tensors outputs = graph->forward({torch::randn({7, 5, 3})});
  CHECK(outputs[0].sizes() == at::IntArrayRef({7, 6, 4}));
  CHECK(outputs[0].select(1, 0).eq(1).all().item<bool>());
  outputs[0].sum().backward();
  CHECK(graph->named_parameters()["cls_token"].grad().eq(14).all().item<bool>());  // seven samples, twice each
  CHECK(fault("- {type: Parameter, shape: [3, 4], expand: true}", inputs_like(torch::zeros({2, 4})))
            .find("expand repeats a first dimension of 1, but shape is [3, 4]") != std::string::npos);
}

TEST_CASE("two uses of one free parameter are one tensor") {
  const auto graph = build("[{type: Parameter, shape: [4], name: a}, {type: Parameter, shape: [4], name: b, share: a}]",
                           inputs_like(torch::zeros({2, 4})));
  CHECK(graph->named_parameters()["a"].is_same(graph->named_parameters()["b"]));
}

TEST_CASE("a repeated layer that reads several inputs reads the one before it and, each time, the others") {
  const std::string layer = "{type: Sub, inputs: [a, b], repeat: 3";
  for (const std::string named : {"}", ", name: chain}"}) {
    CAPTURE(named);
    const auto graph =
        build("[{type: Mul, other: 10, name: a}, {type: Mul, other: 0.5, inputs: x, name: b}, " + layer + named + "]",
              inputs_like(torch::zeros({2, 4})));
    const auto x = torch::randn({3, 4});
    CHECK(torch::allclose(graph->forward({x})[0], 10 * x - 3 * (x / 2)));
  }
}

TEST_CASE("numbers keep whole numbers whole") {
  const auto index = inputs_like(torch::zeros({2, 4}, at::kLong));
  const auto graph = build("[{type: Add, other: 1}, {type: Mul, other: 3}]", index);
  CHECK(graph->forward({torch::ones({2, 4}, at::kLong)})[0].equal(torch::full({2, 4}, 6, at::kLong)));
  CHECK(fault("- Add", index).find("it reads 2 or more inputs, or 1 input and the parameter other") !=
        std::string::npos);
  CHECK(fault("- Max", index).find("it needs dim, the dimension that is removed, or 2 or more inputs") !=
        std::string::npos);
  CHECK(fault("- Pow", index).find("it reads 2 inputs, or 1 input and the parameter exponent") != std::string::npos);
}

TEST_CASE("unpooling says which sizes it can give") {
  const std::string pool = "- {type: MaxPool1d, kernel_size: 3, return_indices: true, outputs: [v, i]}\n";
  const auto signal = inputs_like(torch::zeros({2, 4, 11}));
  CHECK(fault(pool + "- {type: MaxUnpool1d, kernel_size: 3, inputs: [v, i], output_size: 13}", signal)
            .find("an output size of 13 in dimension 2 is not between 6 and 12") != std::string::npos);
  CHECK(fault(pool + "- {type: MaxUnpool1d, kernel_size: 3}", signal).find("but gets 1 inputs") != std::string::npos);
  CHECK(fault(pool + "- {type: MaxUnpool1d, kernel_size: 3, inputs: [v, v]}", signal)
            .find("must be int64 and of the same shape") != std::string::npos);
}
