#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "registry/graph/fusion.h"
#include "registry/graph/passes.h"
#include "registry/kernels/cpu_path.h"
#include "tests/registry/fusion_plans.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

TEST_CASE("layers are fused where values flow, whatever stands between them") {
  const std::vector<int64_t> shape = {2, 6};
  const std::string linear = "{type: Linear, out_features: 6, ";
  // What is between runs before, or after, as it needs.
  CHECK(fused("[" + linear +
                  "name: a}, {type: Tanh, name: b, inputs: x}, {type: ReLU, name: c, inputs: a}, {type: "
                  "Add, name: d, inputs: [b, c]}]",
              shape, linear_relu()) == Strings{"b", "a + c", "d"});
  CHECK(fused("[{type: Add, name: s, inputs: [x, x]}, {type: Tanh, name: t}, {type: LayerNorm, name: n, inputs: s}, "
              "{type: Add, name: u, inputs: [t, n]}]",
              shape, catalog().fusions) == Strings{"s + n", "t", "u"});
  // What is read must be there before what is given is read.
  const FusionPattern pattern{.nodes = {{"a", {"Linear"}}, {"b", {"Add"}, {"a", "other"}, true}}, .gives = {"a", "b"}};
  const auto linear_add =
      only({"LinearAdd", "", pattern, [](const FusedLayers& layers) { return layers["a"].layer.operation; }});
  CHECK(fused("[" + linear + "name: a}, {type: Tanh, name: t, inputs: x}, {type: Add, name: b, inputs: [t, a]}]", shape,
              linear_add) == Strings{"t", "a + b"});
  CHECK(fused("[" + linear + "name: a}, {type: Tanh, name: t}, {type: Add, name: b, inputs: [t, a]}]", shape,
              linear_add) == Strings{"a", "t", "b"});
  // Random draws keep their order.
  const auto drop = only({"LinearDropout", "", FusionPattern::chain({"Linear", "Dropout"}),
                          [](const FusedLayers& layers) { return layers["0"].layer.operation; }});
  const std::string other = "{type: Dropout, name: o, inputs: x}";
  const std::string sum = "{type: Add, name: s, inputs: [o, d]}";
  CHECK(fused("[" + linear + "name: l}, {type: Dropout, name: d}, " + other + ", " + sum + "]", shape, drop) ==
        Strings{"l + d", "o", "s"});
  CHECK(fused("[" + linear + "name: l}, " + other + ", {type: Dropout, name: d, inputs: l}, " + sum + "]", shape,
              drop) == Strings{"l", "o", "d", "s"});
}

TEST_CASE("layers that wait for other ranks keep their order") {
  const std::string norms = "{type: BatchNorm1d, name: a}, {type: BatchNorm1d, name: b, inputs: x}";
  CHECK(fused("[" + norms + ", {type: ReLU, name: c, inputs: a}, {type: Add, inputs: [b, c]}]", {4, 6},
              catalog().fusions) == Strings{"a", "b", "c", "3"});
}

TEST_CASE("a pattern that is none is refused") {
  const auto refused = [](FusionPattern pattern) {
    FusionRegistry registry;
    return message_of<PluginError>([&] { registry.add({"Broken", "", std::move(pattern), nullptr}); });
  };
  const std::string broken = "the pattern of the fusion Broken is wrong: ";
  CHECK(refused({}) == broken + "it has no nodes");
  CHECK(refused({.nodes = {{"a", {}}}}) == broken + "node 'a' has no types");
  CHECK(refused({.nodes = {{"a", {"ReLU"}}, {"b", {"ReLU"}, {"c"}}}}) ==
        broken + "node 'b' reads nothing that an earlier node reads or gives");
  CHECK(refused({.nodes = {{"a", {"ReLU"}}, {"a", {"ReLU"}, {"a"}}}}) == broken + "the name 'a' stands for two things");
  CHECK(refused({.nodes = {{"a", {"Add"}, {"x"}, true}}}) == broken + "node 'a' has an order of two inputs only");
  CHECK(refused({.nodes = {{"a", {"Add"}}}, .gives = {"b"}}) == broken + "it gives 'b', which is no node");
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

TEST_CASE("no fusion reaches across the border of a container's shard, nor joins two layers with shards of their own") {
  const std::vector<int64_t> shape = {2, 4};
  const std::string yaml = "[{type: Linear, out_features: 4}, ReLU, {type: Linear, out_features: 4}, ReLU]";
  const auto around = [](const std::string& layer) { return Bracket{layer, [] {}, [](const Tensors&) {}}; };
  CHECK(fused(yaml, shape, linear_relu()) == Strings{"0 + 1", "2 + 3"});
  CHECK(fused(yaml, shape, linear_relu(), {around("2")}) == Strings{"0 + 1", "2", "2 + 3", "2"});
  CHECK(fused(yaml, shape, linear_relu(), {around("2"), around("3")}) ==
        Strings{"0 + 1", "2", "2", "2", "3", "3", "3"});
  const std::string nested = "[{type: Sequential, name: s, layers: " + yaml + "}]";
  CHECK(fused(nested, shape, linear_relu(), {around("s")}) == Strings{"s", "s.0 + s.1", "s.2 + s.3", "s"});
}

TEST_CASE("a convolution of 1x1 passes on what it reads to one other layer, which reads later and changes nothing") {
  const auto reads = [](const std::string& layers) {
    const auto graph = build_seeded("[Tanh, " + layers + "]", inputs_like(torch::zeros({4, 24, 4, 4})));
    const Plan plan = make_plan(*graph, with(catalog().fusions));
    for (const PlanStep& step : plan.steps) {
      if (step.layer == "c" && step.outputs.size() == 2) {
        return std::ranges::count_if(plan.steps, [&](const PlanStep& reader) {
          return std::ranges::count(reader.inputs, step.outputs[1]) == 1;
        });
      }
    }
    return std::ptrdiff_t{0};
  };
  const std::string conv = "{type: Conv2d, name: c, out_channels: 24, kernel_size: 1}, ";
  const std::ptrdiff_t one = kernels::best_cpu_path() == kernels::CpuPath::kGeneric ? 0 : 1;
  CHECK(reads(conv + "{type: Add, inputs: [c, '0']}") == one);
  CHECK(reads(conv + "{type: Conv2d, name: d, out_channels: 24, kernel_size: 1, inputs: '0'}, {type: Add, inputs: "
                     "[c, d]}") == one);
  CHECK(reads(conv + "ReLU") == 0);
  CHECK(reads(conv + "{type: Sigmoid, inputs: '0'}, {type: Add, inputs: [c, '0']}") == 0);
  CHECK(reads(conv + "{type: ReLU, inplace: true, name: r, inputs: '0'}, {type: Add, inputs: [c, r]}") == 0);
  CHECK(reads(conv + "{type: Flatten, name: f, inputs: '0'}, {type: Flatten, name: g, inputs: c}, {type: Add, inputs: "
                     "[f, g]}") == 0);
}

TEST_CASE("two fusions of one name are refused") {
  FusionRegistry registry = linear_relu();
  CHECK_THROWS_WITH_AS(registry.add({"LinearReLU", "", FusionPattern::chain({"Linear"}), nullptr}),
                       "a fusion called LinearReLU is already registered by trainrun itself; trainrun itself must "
                       "choose another name",
                       PluginError);
}
