#include <torch/torch.h>

#include "registry/graph/flatten.h"
#include "registry/graph/fusion.h"
#include "registry/graph/passes.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "runner/distributed/shard_layout.h"
#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

const at::Tensor kImages = torch::empty({2, 3, 32, 32}, torch::kMeta);

/// The layers as all of a recipe's, without weights.
std::shared_ptr<Graph> model_of(const std::string& layers) {
  const ShapeMode shapes;
  return build_model_graph(read<LayerList>(layers, catalog()), inputs_like(kImages));
}

Strings state_names_of(const Graph& graph) {
  Strings names;
  for (const auto& item : graph.named_parameters()) names.push_back(item.key());
  return names;
}

bool contains(const Strings& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TEST_CASE(
    "a vision model that is all of a recipe's layers has Python's state names, and others have its name in front") {
  const Strings alone = state_names_of(*model_of("[{type: ResNet18, num_classes: 3}]"));
  CHECK(alone.size() == 62);
  CHECK(alone.front() == "conv1.weight");
  CHECK(contains(alone, "layer2.0.downsample.1.bias"));
  CHECK(alone.back() == "fc.bias");
  for (const std::string layers : {"[{type: ResNet18, name: body}]",
                                   "[{type: Sequential, name: body, layers: "
                                   "[{type: ResNet18}]}]",
                                   "[{type: ResNet18, name: body, num_classes: null}, ReLU]"}) {
    CAPTURE(layers);
    for (const std::string& name : state_names_of(*model_of(layers))) CHECK(name.starts_with("body."));
  }
  CHECK(state_names_of(*model_of("[ReLU, ResNet18]")).front() == "1.conv1.weight");
}

TEST_CASE("the layers of a vision model lie at its place, under their state names") {
  const auto graph = model_of("[{type: ResNet18, num_classes: 3}]");
  const auto modules = graph->named_modules();
  size_t leaves = 0;
  for (const FlatLayer& layer : flatten(*graph).layers) {
    CHECK(layer.node->place.line == 1);
    if (!layer.is_leaf()) continue;
    ++leaves;
    if (layer.node->layer.state) CHECK(modules.contains(layer.name));
  }
  CHECK(leaves == 69);
}

TEST_CASE("an input that does not fit a part of a vision model is refused with the part's name") {
  const std::string text = fault("[{type: VGG11}]", torch::empty({2, 3, 8, 8}));
  CHECK(text.find("[0].features.15: ") != std::string::npos);
  CHECK(text.find("MaxPool2d does not fit its input") != std::string::npos);
  CHECK(fault("[{type: ViT_S_16}]", torch::empty({2, 3, 40, 40})).find("resize the images") != std::string::npos);
  CHECK(fault("[{type: UNet, num_classes: 1}]", torch::empty({2, 3, 40, 40})).find("multiples of 16") !=
        std::string::npos);
}

TEST_CASE("fusions find the layers of a vision model") {
  PlanOptions options;
  options.fusions = std::make_shared<const FusionRegistry>(catalog().fusions);
  const auto graph = model_of("[{type: VGG11, num_classes: 3}]");
  const Plan plan = make_plan(*graph, options);
  const auto found = [&](const std::string& type) {
    return std::count_if(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& step) { return step.type == type; });
  };
  CHECK(found("Conv2d + ReLU + MaxPool2d") == 1);  // the first, of three channels
  CHECK(found("ReLU + MaxPool2d") == 4);
}

TEST_CASE("lr_scale of a vision model is that of all its parameters") {
  const auto graph = model_of("[{type: ResNet18, lr_scale: 0.5}]");
  const auto scales = graph->lr_scales();
  CHECK(scales.size() == graph->parameters().size());
  for (const auto& [name, scale] : scales) CHECK(scale == 0.5);
}

TEST_CASE("FSDP's units are the stages of a vision model, and all parameters are in one") {
  for (const std::string layers : {"[{type: ResNet18, num_classes: 3}]", "[{type: ViT_S_16, num_classes: 3}]"}) {
    CAPTURE(layers);
    const auto graph = model_of(layers);
    size_t parameters = 0;
    for (const ShardUnit& unit : shard_units(*graph, {})) {
      parameters += unit.parameters.size();
      CHECK_FALSE(unit.layers.empty());
    }
    CHECK(parameters == graph->parameters().size());
  }
  CHECK(shard_units(*model_of("[{type: ResNet18}]"), {}).size() == 7);  // conv1, bn1, layer1 to layer4, fc
}

TEST_CASE("a vision model that two places share is one model") {
  const auto graph = model_of(
      "[{type: ResNet18, name: left, num_classes: null}, "
      "{type: ResNet18, name: right, share: left, num_classes: null, inputs: x}]");
  CHECK(state_names_of(*graph).size() == 2 * 60);
  CHECK(graph->named_parameters()["left.conv1.weight"].is_same(graph->named_parameters()["right.conv1.weight"]));
}
