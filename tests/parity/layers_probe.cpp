#include "tests/parity/layers_probe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <limits>

#include "registry/graph/layer_decay.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/graph_builder.h"
#include "registry/kinds/metric_details.h"
#include "runner/model/model.h"

namespace trainrun {
namespace {

using nlohmann::json;

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& item : module.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) state.emplace_back(item.key(), item.value());
  return state;
}

/// The tensors, those of floating point ready to collect gradients.
Tensors with_gradients(const TensorMap& inputs) {
  Tensors tensors;
  for (const auto& [name, tensor] : inputs) {
    tensors.push_back(tensor.clone().set_requires_grad(tensor.is_floating_point()));
  }
  return tensors;
}

void give_input_gradients(Request& request, const TensorMap& inputs, const Tensors& tensors) {
  size_t i = 0;
  for (const auto& [name, unused] : inputs) request.give("input_gradient", name, tensors[i++].grad());
}

/// Turns all numbers of floating point into doubles. (Module::to would turn counters too.)
void make_double(torch::nn::Module& module, TensorMap& inputs) {
  for (auto& [name, tensor] : state_of(module)) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(at::kDouble));
  }
  for (auto& [name, tensor] : inputs) {
    if (tensor.is_floating_point()) tensor = tensor.to(at::kDouble);
  }
}

/// What two ranks keep, as `compute` needs it.
std::unique_ptr<Metric> merged_metric(const std::array<std::unique_ptr<Metric>, 2>& parts,
                                      std::unique_ptr<Metric> merged) {
  std::vector<at::Tensor> sums = parts[0]->sums();
  const std::vector<at::Tensor> other_sums = parts[1]->sums();
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] + other_sums[i];
  merged->set_sums(sums);
  std::vector<at::Tensor> rows = parts[0]->gathered();
  const std::vector<at::Tensor> other_rows = parts[1]->gathered();
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = at::cat({rows[i], other_rows[i]});
  merged->set_gathered(rows);
  return merged;
}

/// What JSON cannot say goes as a string.
json figures_json(const Figures& figures) {
  json result = json::object();
  for (const auto& [name, value] : figures) result[name] = std::isnan(value) ? json("nan") : json(value);
  return result;
}

}  // namespace

LayerInputs examples_of(const TensorMap& inputs) {
  const ShapeMode shapes;
  LayerInputs examples;
  int64_t samples = std::numeric_limits<int64_t>::max();  // an input may hold several rows for each
  for (const auto& [name, tensor] : inputs) samples = tensor.dim() > 0 ? std::min(samples, tensor.size(0)) : samples;
  for (const auto& [name, tensor] : inputs) {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    const bool has_more = !sizes.empty() && samples > 0 && sizes[0] % samples == 0;
    if (!sizes.empty()) sizes[0] = kExampleBatch * (has_more ? sizes[0] / samples : 1);
    examples.names.push_back(name);
    examples.examples.push_back(at::empty(sizes, tensor.scalar_type()));
    examples.num_classes.emplace_back();
  }
  return examples;
}

json run_shapes(Request& request) {
  const LayerList layers = read_spec<LayerList>(request.catalog(), json::array({request["spec"]}));
  const LayerInputs inputs = examples_of(request.tensors("input"));
  const ShapeMode shapes;
  json state = json::object();
  const auto graph = build_model_graph(layers, inputs);
  for (const auto& [name, tensor] : state_of(*graph)) state[name] = tensor.sizes().vec();
  json reply = {{"state", state}};
  if (request.has("layer_decay")) reply["scales"] = layer_decay_scales(*graph, request["layer_decay"].get<double>());
  return reply;
}

json run_layer(Request& request) {
  const LayerList layers = read_spec<LayerList>(request.catalog(), json::array({request["spec"]}));
  TensorMap inputs = request.tensors("input");
  at::manual_seed(static_cast<uint64_t>(request.number("seed")));
  const auto graph = (request.has("whole") ? build_model_graph : build_graph)(layers, examples_of(inputs));
  if (request.has("dtype") && request["dtype"] == "double") make_double(*graph, inputs);
  graph->set_outputs(graph->nodes().back().outputs);
  const TensorMap state = request.tensors("state");
  {
    const at::NoGradGuard no_gradients;
    for (auto& [name, tensor] : state_of(*graph)) {
      if (!state.empty()) tensor.copy_(state.at(name));
    }
  }
  request.give("initial", state_of(*graph));
  graph->to(request.device());

  at::manual_seed(static_cast<uint64_t>(request.number("seed")));
  const Tensors arguments = with_gradients(inputs);
  Tensors passed;  // a layer that works in place may not have a leaf
  for (const at::Tensor& argument : arguments) passed.push_back(argument.requires_grad() ? argument * 1 : argument);
  const Tensors outputs = graph->forward(passed);
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string index = std::to_string(i);
    request.give("output", index, outputs[i]);
    const TensorMap weights = request.tensors("cotangent");
    if (weights.contains(index)) sum = sum + (outputs[i] * weights.at(index)).sum();
  }
  if (sum.requires_grad()) sum.backward();
  give_input_gradients(request, inputs, arguments);
  for (const auto& item : graph->named_parameters()) request.give("gradient", item.key(), item.value().grad());
  request.give("final", state_of(*graph));

  const at::NoGradGuard no_gradients;
  graph->eval();
  Tensors fresh;
  for (const auto& [name, tensor] : inputs) fresh.push_back(tensor.clone());
  const Tensors evaluated = graph->forward(fresh);
  for (size_t i = 0; i < evaluated.size(); ++i) request.give("evaluated", std::to_string(i), evaluated[i]);
  return json::object();
}

json run_loss(Request& request) {
  const auto component = request.spec<Component<LossKind>>();
  const TensorMap inputs = request.tensors("input");
  const LayerInputs examples = examples_of(inputs);
  {
    const ShapeMode shapes;  // as a model is planned
    const at::NoGradGuard no_gradients;
    component.build(examples).forward(examples.examples);
  }
  const Loss loss = component.build(examples);
  const Tensors arguments = with_gradients(inputs);
  const at::Tensor value = loss.forward(arguments);
  value.backward();
  request.give("loss", "value", value);
  give_input_gradients(request, inputs, arguments);
  return json::object();
}

json run_metric(Request& request) {
  const auto component = request.spec<Component<MetricKind>>();
  const LayerInputs examples = examples_of(request.tensors("0"));
  const auto whole = component.build(examples);
  if (request.has("labels")) name_labels(*whole, request["labels"].get<std::vector<std::string>>());
  const std::array parts = {component.build(examples), component.build(examples)};
  auto merged = component.build(examples);
  if (request.has("classes")) {
    const auto classes = request["classes"].get<std::vector<std::string>>();
    for (Metric* metric : {whole.get(), parts[0].get(), parts[1].get(), merged.get()}) name_classes(*metric, classes);
  }
  for (int64_t i = 0; i < request.number("batches"); ++i) {
    Tensors inputs;
    for (const auto& [name, tensor] : request.tensors(std::to_string(i))) inputs.push_back(tensor);
    whole->update(inputs);
    parts[static_cast<size_t>(i) % 2]->update(inputs);
  }
  json reply = {{"figures", figures_json(whole->compute())},
                {"merged", figures_json(merged_metric(parts, std::move(merged))->compute())}};
  reply["left_out"] = left_out_of(*whole);
  for (const auto& [name, value] : whole->compute()) {
    const auto better = better_of(*whole, name);
    reply["better"][name] = better ? json(*better) : json();
  }
  whole->reset();
  reply["empty"] = figures_json(whole->compute());
  {
    const ShapeMode shapes;
    const at::NoGradGuard no_gradients;
    component.build(examples)->update(examples.examples);
  }
  return reply;
}

}  // namespace trainrun
