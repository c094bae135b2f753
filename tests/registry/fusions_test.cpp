#include <torch/torch.h>

#include <map>

#include "registry/graph/fusion.h"
#include "registry/graph/passes.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

std::shared_ptr<Graph> build_seeded(const std::string& yaml, const LayerInputs& inputs) {
  torch::manual_seed(5);
  return build(yaml, inputs);
}

PlanOptions with(const FusionRegistry& fusions) {
  PlanOptions options;
  options.fusions = std::make_shared<const FusionRegistry>(fusions);
  return options;
}

/// The layers that each step does.
std::vector<std::string> layers_of(const Plan& plan) {
  std::vector<std::string> layers;
  for (const PlanStep& step : plan.steps) layers.push_back(step.layer);
  return layers;
}

/// Layers that a fusion replaces all or none of, and what flows in.
struct FusionExample {
  std::string layers;
  std::vector<int64_t> shape;
};

const std::map<std::string, std::vector<FusionExample>>& fusion_examples() {
  static const std::map<std::string, std::vector<FusionExample>> examples = {
      {"ReLUMaxPool2d",
       {{"[ReLU, {type: MaxPool2d, kernel_size: 2}]", {2, 3, 8, 8}},
        {"[{type: Conv2d, out_channels: 4, kernel_size: 3}, ReLU, {type: MaxPool2d, kernel_size: 2}]", {3, 1, 13, 9}},
        {"[{type: ReLU}, {type: MaxPool2d, kernel_size: 3, stride: 2, padding: 1}]", {2, 3, 11, 11}},
        {"[ReLU, {type: MaxPool2d, kernel_size: [2, 3], stride: [1, 2], dilation: [2, 1]}]", {2, 3, 9, 11}},
        {"[ReLU, {type: MaxPool2d, kernel_size: 2, ceil_mode: true}]", {2, 3, 7, 7}},
        {"[{type: BatchNorm2d}, {type: ReLU, inplace: true}, {type: MaxPool2d, kernel_size: 2}]", {2, 3, 8, 8}}}},
  };
  return examples;
}

struct Pass {
  Tensors outputs;
  Tensors gradients;  // of the input, then of the parameters
};

/// Few different values, so that windows have ties.
at::Tensor input_of(const std::vector<int64_t>& shape) {
  torch::manual_seed(9);
  return torch::randint(-3, 4, shape).to(at::kFloat).requires_grad_();
}

Pass run(const Plan& plan, Graph& graph, const std::vector<int64_t>& shape) {
  const at::Tensor x = input_of(shape);
  Pass pass;
  pass.outputs = plan.run({x});
  torch::manual_seed(11);
  at::Tensor loss = torch::zeros({});
  for (const at::Tensor& output : pass.outputs) loss = loss + (output * torch::randn_like(output)).sum();
  graph.zero_grad();
  loss.backward();
  pass.gradients = {x.grad()};
  for (const at::Tensor& parameter : graph.parameters()) pass.gradients.push_back(parameter.grad().clone());
  return pass;
}

void check_equal(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(torch::equal(a[i], b[i]));
}

FusionRegistry only(const Fusion& fusion) {
  FusionRegistry registry;
  registry.add(fusion);
  return registry;
}

/// Of layers with and without parameters, which it calls as they are.
FusionRegistry linear_relu() {
  return only({"LinearReLU", "", {"Linear", "ReLU"}, [](const Fusion::Nodes& nodes) {
                 return operation_of([first = nodes[0]->layer, second = nodes[1]->layer](const Tensors& inputs) {
                   return second.forward(first.forward(inputs));
                 });
               }});
}

Strings fused(const std::string& yaml, const std::vector<int64_t>& shape, const FusionRegistry& fusions,
              const std::vector<Bracket>& brackets = {}) {
  const auto graph = build_seeded(yaml, inputs_like(torch::zeros(shape)));
  PlanOptions options = with(fusions);
  options.brackets = brackets;
  return layers_of(make_plan(*graph, options));
}

}  // namespace

TEST_CASE("every fusion gives what the layers give that it replaces, forward and backward, bit for bit") {
  for (const Fusion& fusion : catalog().fusions.entries()) {
    CAPTURE(fusion.name);
    CHECK_FALSE(fusion.doc.empty());
    REQUIRE(fusion_examples().contains(fusion.name));
    for (const FusionExample& example : fusion_examples().at(fusion.name)) {
      CAPTURE(example.layers);
      const auto graph = build_seeded(example.layers, inputs_like(torch::zeros(example.shape)));
      const Plan plain = make_plan(*graph);
      const Plan plan = make_plan(*graph, with(only(fusion)));
      REQUIRE(plan.steps.size() == plain.steps.size() - fusion.types.size() + 1);
      const Pass expected = run(plain, *graph, example.shape);
      const Pass found = run(plan, *graph, example.shape);
      check_equal(found.outputs, expected.outputs);
      check_equal(found.gradients, expected.gradients);
    }
  }
}

TEST_CASE("a pooling that also says where its values were is not fused") {
  CHECK(fused("[ReLU, {type: MaxPool2d, kernel_size: 2, return_indices: true}]", {2, 3, 8, 8}, catalog().fusions) ==
        Strings{"0", "1"});
}

TEST_CASE("layers are fused across the borders of containers and blocks, and not where somebody else reads") {
  const std::vector<int64_t> shape = {2, 4};
  const std::string linear = "{type: Linear, out_features: 4, name: fc}";
  CHECK(fused("[" + linear + ", ReLU]", shape, linear_relu()) == Strings{"fc + 1"});
  CHECK(fused("[{type: Sequential, name: s, layers: [" + linear + "]}, ReLU]", shape, linear_relu()) ==
        Strings{"s.fc + 1"});
  CHECK(fused("[{type: Residual, name: r, main: [" + linear + ", ReLU]}]", shape, linear_relu()) ==
        Strings{"r.main.fc + r.main.1", "r.sum"});
  CHECK(fused("[" + linear + ", ReLU, {type: Add, inputs: ['1', fc]}]", shape, linear_relu()) ==
        Strings{"fc", "1", "2"});
  CHECK(fused("[" + linear + ", Tanh, {type: ReLU, inputs: fc}]", shape, linear_relu()) == Strings{"fc", "1", "2"});
  const auto graph = build_seeded("[" + linear + ", ReLU]", inputs_like(torch::zeros(shape)));
  graph->set_outputs({1, 2});
  CHECK(layers_of(make_plan(*graph, with(linear_relu()))) == Strings{"fc", "1"});
}

TEST_CASE("a layer that overwrites its input is fused where nobody else sees that input") {
  const std::string pool = "{type: MaxPool2d, kernel_size: 2}";
  const std::string relu = "{type: ReLU, inplace: true, name: act}";
  const std::vector<int64_t> shape = {2, 3, 8, 8};
  const std::string conv = "{type: Conv2d, out_channels: 3, kernel_size: 1, name: conv}";
  const FusionRegistry& fusions = catalog().fusions;
  CHECK(fused("[" + conv + ", " + relu + ", " + pool + "]", shape, fusions) == Strings{"conv", "act + 2"});
  CHECK(fused("[" + relu + ", " + pool + "]", shape, fusions) == Strings{"act", "1"});  // the batch itself
  CHECK(fused("[" + conv + ", {type: Unflatten, dim: 1, unflattened_size: [3]}, " + relu + ", " + pool + "]", shape,
              fusions) == Strings{"conv", "1", "act", "3"});  // memory of another tensor
  CHECK(fused("[" + conv + ", " + relu + ", " + pool + ", {type: MaxPool2d, kernel_size: 2, inputs: conv}]", shape,
              fusions) == Strings{"conv", "act", "2", "3"});
}

TEST_CASE("no fusion reaches across the border of a shard") {
  const std::vector<int64_t> shape = {2, 4};
  const std::string yaml = "[{type: Linear, out_features: 4}, ReLU, {type: Linear, out_features: 4}, ReLU]";
  const auto around = [](const std::string& layer) { return Bracket{layer, [] {}, [](const Tensors&) {}}; };
  CHECK(fused(yaml, shape, linear_relu()) == Strings{"0 + 1", "2 + 3"});
  CHECK(fused(yaml, shape, linear_relu(), {around("2")}) == Strings{"0 + 1", "2", "2", "2", "3"});
  const std::string nested = "[{type: Sequential, name: s, layers: " + yaml + "}]";
  CHECK(fused(nested, shape, linear_relu(), {around("s")}) == Strings{"s", "s.0 + s.1", "s.2 + s.3", "s"});
}

TEST_CASE("a module in two places is fused in each by itself") {
  const auto graph = build_seeded(R"(
- {type: Linear, out_features: 4, name: fc}
- ReLU
- {type: Linear, out_features: 4, share: fc}
- ReLU
)",
                                  inputs_like(torch::zeros({2, 4})));
  const Plan plain = make_plan(*graph);
  const Plan plan = make_plan(*graph, with(linear_relu()));
  CHECK(layers_of(plan) == Strings{"fc + 1", "2 + 3"});
  const Pass expected = run(plain, *graph, {2, 4});
  const Pass found = run(plan, *graph, {2, 4});
  check_equal(found.outputs, expected.outputs);
  check_equal(found.gradients, expected.gradients);
}

TEST_CASE("two fusions of one name are refused") {
  FusionRegistry registry = linear_relu();
  CHECK_THROWS_WITH_AS(registry.add({"LinearReLU", "", {"Linear"}, nullptr}),
                       "a fusion called LinearReLU is already registered by trainrun itself; trainrun itself must "
                       "choose another name",
                       PluginError);
}
