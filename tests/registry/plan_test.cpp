#include "registry/graph/plan.h"

#include <torch/torch.h>

#include "registry/graph/flatten.h"
#include "registry/graph/passes.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

TEST_CASE("a flattened graph has every layer once, under its state name, a container before those within") {
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: fc}
- type: Sequential
  name: stage
  layers:
    - {type: Residual, name: res, main: [{type: Linear, out_features: 4}, Tanh]}
    - {type: Parallel, name: both, layers: [ReLU, [GELU, {type: Linear, out_features: 2}]]}
)",
                           torch::zeros({2, 4}));
  const FlatGraph flat = flatten(*graph);
  Strings names;
  Strings leaves;
  for (const FlatLayer& layer : flat.layers) {
    names.push_back(layer.name);
    if (layer.is_leaf()) leaves.push_back(layer.name + " " + layer.node->type + " " + layer.written->type);
  }
  CHECK(names == Strings{"fc", "stage", "stage.res", "stage.res.main", "stage.res.main.0", "stage.res.main.1",
                         "stage.res.shortcut", "stage.res.sum", "stage.both", "stage.both.0", "stage.both.0.0",
                         "stage.both.1", "stage.both.1.0", "stage.both.1.1", "stage.both.merge"});
  CHECK(leaves == Strings{"fc Linear Linear", "stage.res.main.0 Linear Linear", "stage.res.main.1 Tanh Tanh",
                          "stage.res.sum Add Residual", "stage.both.0.0 ReLU ReLU", "stage.both.1.0 GELU GELU",
                          "stage.both.1.1 Linear Linear", "stage.both.merge Concat Parallel"});
  const FlatLayer& stage = flat.layers[1];
  CHECK(stage.end == flat.layers.size());
  CHECK(stage.inputs == flat.layers[0].outputs);
  CHECK(stage.outputs == flat.layers.back().outputs);
  CHECK(flat.layers[7].inputs == std::vector<size_t>{flat.layers[5].outputs[0], stage.inputs[0]});  // the sum
  CHECK(flat.outputs == stage.outputs);
}

TEST_CASE("a layer's attributes are what the recipe says, and the defaults") {
  const auto graph =
      build("[{type: Conv2d, out_channels: 8, kernel_size: [3, 5], bias: false}]", torch::zeros({2, 1, 9, 9}));
  const nlohmann::json& attributes = graph->nodes()[0].attributes;
  CHECK(attributes.at("out_channels") == 8);
  CHECK(attributes.at("kernel_size") == nlohmann::json({3, 5}));
  CHECK(attributes.at("bias") == false);
  CHECK(attributes.at("stride") == 1);
  CHECK(attributes.at("padding_mode") == "zeros");
  CHECK(attributes.at("in_channels").is_null());
  CHECK_FALSE(attributes.contains("name"));
}

TEST_CASE("a plan gives back each tensor after the last step that reads it") {
  const auto graph = build(R"(
- {type: Linear, out_features: 4, name: a}
- {type: Linear, out_features: 4, name: b}
- {type: Add, inputs: [a, b]}
- {type: Chunk, chunks: 2, outputs: [left, right]}
- {type: Tanh, inputs: left}
)",
                           torch::zeros({2, 4}));
  const Plan plan = make_plan(*graph);
  std::vector<std::vector<size_t>> released;
  for (const PlanStep& step : plan.steps) released.push_back(step.released);
  const std::vector<std::vector<size_t>> expected = {{0}, {}, {1, 2}, {3, 5}, {4}};  // right: nobody reads it
  CHECK(released == expected);
  const auto x = torch::randn({3, 4});
  CHECK(torch::equal(plan.run({x})[0], graph->forward({x})[0]));
}

TEST_CASE("brackets are around their layers, those of a container around those of the layers within") {
  const auto graph = build("[Tanh, {type: Sequential, name: s, layers: [{type: Linear, out_features: 4}, ReLU]}, Tanh]",
                           torch::zeros({2, 4}));
  Strings calls;
  const auto around = [&](const std::string& layer, const std::string& name) {
    return Bracket{layer, [&calls, name] { calls.push_back("before " + name); },
                   [&calls, name](const Tensors& outputs) {
                     calls.push_back("after " + name + " " + at::str(outputs.at(0).sizes()));
                   }};
  };
  PlanOptions options;
  options.brackets = {around("s", "s"), around("s.0", "fc"), around("s", "outside")};
  options.measure = [&](const PlanStep& step) {
    return operation_of([&calls, step](const Tensors& inputs) {
      if (step.computes) calls.push_back(step.name.type);
      return step.operation->run(inputs);
    });
  };
  const auto x = torch::randn({3, 4});
  CHECK(torch::equal(make_plan(*graph, options).run({x})[0], graph->forward({x})[0]));
  CHECK(calls == Strings{"Tanh", "before outside", "before s", "before fc", "Linear", "after fc [3, 4]", "ReLU",
                         "after s [3, 4]", "after outside [3, 4]", "Tanh"});
  options.brackets = {around("nobody", "")};
  CHECK_THROWS_WITH_AS(make_plan(*graph, options), "no layer is called 'nobody'", Error);
}

TEST_CASE("a layer within a container is the one that is named where it fails") {
  const auto graph =
      build("[{type: Sequential, name: s, layers: [{type: Linear, out_features: 4}, Tanh]}]", torch::zeros({2, 4}));
  try {
    make_plan(*graph).run({torch::zeros({3, 5})});
    FAIL("nothing was thrown");
  } catch (const ComponentError& error) {
    CHECK(std::string(error.what()).find("[0].layers[0]: Linear failed on [3, 5]: ") != std::string::npos);
  }
}

TEST_CASE("an attention's output lies in memory as Python's where something may draw random numbers for it") {
  const std::string attention = "{type: MultiheadAttention, num_heads: 2, batch_first: true, name: attn";
  struct Case {
    std::string layers;
    bool is_free;  // to lie as it is computed
  };
  const Case cases[] = {
      {attention + "}, {type: Linear, out_features: 4}", true},
      {attention + ", is_causal: true}, {type: Linear, out_features: 4}", true},
      {attention + ", is_causal: true}, {type: Linear, out_features: 4}, {type: Dropout, p: 0.0}", true},
      {attention + ", is_causal: true}, {type: Linear, out_features: 4}, {type: Dropout, p: 0.1}", false},
      {attention + ", dropout: 0.1}, {type: Linear, out_features: 4}", false},
      {"{type: Linear, out_features: 8}, " + attention + "}", false},  // a loss may draw
  };
  const torch::Tensor x = torch::randn({3, 17, 8});
  for (const Case& one : cases) {
    CAPTURE(one.layers);
    const auto graph = build("[" + one.layers + "]", inputs_like(x));
    PlanOptions fused;
    fused.fusions = std::make_shared<const FusionRegistry>();
    const auto output = [&](const Plan& plan) {
      for (const PlanStep& step : plan.steps) {
        if (step.layer == "attn") return step.operation->run({x})[0];
      }
      throw Error("no attention");
    };
    const Plan plan = make_plan(*graph, fused);
    const torch::Tensor y = output(plan);
    CHECK(y.is_contiguous() == one.is_free);
    CHECK(y.transpose(0, 1).is_contiguous() == !one.is_free);
    CHECK(output(make_plan(*graph)).transpose(0, 1).is_contiguous());
    if (one.is_free) CHECK(torch::allclose(y, output(make_plan(*graph)), 1e-6, 1e-6));
  }
}
