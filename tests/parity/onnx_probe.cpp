#include "tests/parity/onnx_probe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "runner/interop/model_export.h"
#include "runner/interop/onnx_model.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {
namespace {

using nlohmann::json;

void shake(torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (item.value().dim() == 1) item.value().add_(at::randn_like(item.value()), 0.1);
  }
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined() || !item.value().is_floating_point()) continue;
    if (item.key().ends_with("running_mean")) item.value().add_(at::randn_like(item.value()), 0.1);
    if (item.key().ends_with("running_var")) item.value().copy_(at::rand_like(item.value()) + 0.5);
  }
}

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& item : module.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) state.emplace_back(item.key(), item.value());
  std::erase_if(state, [](const auto& item) { return !item.second.defined(); });
  return state;
}

/// Of so many samples; whole numbers are 0 or 1, which are tokens, masks and classes everywhere.
Batch drawn_batch(const DatasetInfo& info, int64_t samples) {
  Batch batch;
  for (const FieldInfo& field : info.fields) {
    std::vector<int64_t> sizes = {samples};
    sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
    const at::Tensor numbers = at::rand(sizes);
    batch.set(field.name, (at::isFloatingType(field.dtype) ? numbers : numbers * 2).to(field.dtype));
  }
  return batch;
}

/// As they are: where an encoder's sequences and a decoder's lie in dimension 0, their lengths differ.
LayerInputs examples_like(const TensorMap& inputs) {
  const ShapeMode shapes;
  LayerInputs examples;
  for (const auto& [name, tensor] : inputs) {
    examples.names.push_back(name);
    examples.examples.push_back(at::empty(tensor.sizes(), tensor.scalar_type()));
  }
  return examples;
}

}  // namespace

json run_onnx_recipe(Request& request) {
  Catalog catalog = request.catalog();
  std::vector<std::string> overrides = export_overrides();
  for (const auto& own : request["overrides"]) overrides.push_back(own);
  const Recipe recipe = load_recipe(request["recipe"], overrides, catalog).recipe;
  at::manual_seed(static_cast<uint64_t>(recipe.seed));
  const DatasetInfo info = recipe.dataset.eval ? evaluation_info(recipe) : training_info(recipe);
  Model model(recipe, info);
  const at::NoGradGuard no_gradients;
  shake(model.graph());
  model.train(false);
  write_onnx(request["path"], onnx_model_of(recipe, info, model));
  const std::vector<size_t>& slots = model.graph().outputs();
  for (const int64_t size : request["sizes"]) {
    const Batch batch = drawn_batch(info, size);
    for (const auto& [name, tensor] : batch.fields()) request.give("batch" + std::to_string(size), name, tensor);
    const Tensors all = model.forward(batch);
    size_t number = 0;
    for (const size_t slot : outputs_of_losses(recipe, model)) {
      const auto place = static_cast<size_t>(std::find(slots.begin(), slots.end(), slot) - slots.begin());
      request.give(std::to_string(size), std::to_string(number++), all[place]);
    }
  }
  return json::object();
}

json run_onnx(Request& request) {
  const LayerList layers = read_spec<LayerList>(request.catalog(), json::array({request["spec"]}));
  const LayerInputs examples = examples_like(request.tensors("input"));
  const GraphFor build = [&](const LayerInputs& inputs) {
    const auto graph = (request.has("whole") ? build_model_graph : build_graph)(layers, inputs);
    graph->set_outputs(graph->nodes().back().outputs);
    return graph;
  };
  at::manual_seed(static_cast<uint64_t>(request.number("seed")));
  const auto graph = build(examples);
  const at::NoGradGuard no_gradients;
  shake(*graph);
  graph->eval();
  OnnxModel model = onnx_model_of(build, examples, tensors_of(*graph));
  model.metadata = {{"made by", "the probe"}};
  write_onnx(request["path"], model, request.has("external"));
  const auto evaluate = [&](const std::string& batch, const std::string& name) {
    Tensors inputs;
    for (const auto& [field, tensor] : request.tensors(batch)) inputs.push_back(tensor.clone());
    const Tensors outputs = graph->forward(inputs);
    for (size_t i = 0; i < outputs.size(); ++i) request.give(name, std::to_string(i), outputs[i]);
  };
  if (request.has("batches")) {
    for (const std::string& batch : request["batches"].get<std::vector<std::string>>()) evaluate(batch, batch);
  }
  evaluate("input", "evaluated");
  return json::object();
}

}  // namespace trainrun
