// Lets a test in Python build any component as a recipe would and see what it does: one JSON request a line on standard
// input, one JSON reply a line on standard output, tensors by way of safetensors files. tests/parity/probe.py is its
// other end.
//
//   {"op": "layer", "spec": {"type": "Linear", "out_features": 3}, "seed": 0, "tensors": "in.safetensors", "results":
//   "out.safetensors"}

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <set>

#include "registry/data/partition.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/files/safetensors.h"
#include "registry/graph/layer_decay.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/graph_builder.h"
#include "registry/kinds/metric_details.h"
#include "runner/data/pixels.h"
#include "runner/data/sampler.h"
#include "runner/loggers/loggers.h"
#include "runner/model/initial_weights.h"
#include "runner/model/model.h"
#include "runner/model/pretrained_weights.h"
#include "runner/model/recipe_loader.h"
#include "runner/process/process_changes.h"
#include "tests/parity/batches_probe.h"
#include "tests/parity/chat_probe.h"
#include "tests/parity/fuzz_readers.h"
#include "tests/parity/generation_probe.h"
#include "tests/parity/imagined_gpu.h"
#include "tests/parity/probe_spec.h"
#include "tests/parity/tokenizer_probe.h"
#include "tests/parity/training_probe.h"

namespace trainrun {
namespace {

using nlohmann::json;
using TensorMap = std::map<std::string, at::Tensor>;

/// One request: what came with it, and what goes back.
class Request {
 public:
  Request(const Catalog& catalog, const json& fields) : catalog_(catalog), fields_(fields) {
    if (!fields.contains("tensors")) return;
    const SafetensorsContent content = read_safetensors(fields.at("tensors"));
    tensors_ = {content.tensors.begin(), content.tensors.end()};
  }

  const Catalog& catalog() const { return catalog_; }
  const json& fields() const { return fields_; }
  const json& operator[](const char* key) const { return fields_.at(key); }
  bool has(const char* key) const { return fields_.contains(key); }
  int64_t number(const char* key) const { return fields_.at(key).get<int64_t>(); }
  template <class T>
  T spec() const {
    return read_spec<T>(catalog_, fields_.at("spec"));
  }
  /// The tensors "input.NAME" by NAME, in the order of the names; on the request's device.
  TensorMap tensors(const std::string& prefix) const {
    TensorMap found;
    for (const auto& [name, tensor] : tensors_) {
      if (name.starts_with(prefix + ".")) found[name.substr(prefix.size() + 1)] = tensor.to(device());
    }
    return found;
  }
  /// Where components compute.
  at::Device device() const { return at::Device(fields_.value("device", "cpu")); }
  /// Sends a tensor, as it is now, back under "PREFIX.NAME".
  void give(const std::string& prefix, const std::string& name, const at::Tensor& tensor) {
    const bool wanted = !has("only") || std::ranges::count((*this)["only"], json(prefix)) > 0;
    if (tensor.defined() && wanted) results_.emplace_back(prefix + "." + name, tensor.detach().to(at::kCPU).clone());
  }
  void give(const std::string& prefix, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) give(prefix, name, tensor);
  }
  void write_results() const {
    if (fields_.contains("results")) write_safetensors(fields_.at("results").get<std::string>(), results_);
  }

 private:
  const Catalog& catalog_;
  const json& fields_;
  TensorMap tensors_;
  NamedTensors results_;
};

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& item : module.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) state.emplace_back(item.key(), item.value());
  return state;
}

/// Examples as the model's graph makes them: the sizes of `inputs`, but the batch.
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

json list_catalog(Request& request) {
  json kinds = json::object();
  request.catalog().for_each([&]<class Kind>(const Registry<Kind>& registry) {
    kinds[Kind::kName] = json::object();
    for (const auto& [name, entry] : registry.entries()) {
      json parameters = json::array();
      for (const Parameter& parameter : entry.parameters) parameters.push_back(parameter.name);
      kinds[Kind::kName][name] = parameters;
    }
  });
  return {{"kinds", kinds}};
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

/// Names and shapes of what a list of one layer keeps, which is a whole model; with "layer_decay" what it makes of the
/// rate of each parameter.
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

/// A list of one layer, built from `seed`: training forward and backward, then evaluation; in double precision where
/// "dtype" is "double". With "whole" it is all of a recipe's layers.
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

/// Batch B's inputs are "B.0", "B.1", …. Also what comes of it when every other batch was another rank's.
json run_metric(Request& request) {
  const auto component = request.spec<Component<MetricKind>>();
  const LayerInputs examples = examples_of(request.tensors("0"));
  const auto whole = component.build(examples);
  if (request.has("labels")) name_labels(*whole, request["labels"].get<std::vector<std::string>>());
  const std::array parts = {component.build(examples), component.build(examples)};
  for (int64_t i = 0; i < request.number("batches"); ++i) {
    Tensors inputs;
    for (const auto& [name, tensor] : request.tensors(std::to_string(i))) inputs.push_back(tensor);
    whole->update(inputs);
    parts[static_cast<size_t>(i) % 2]->update(inputs);
  }
  json reply = {{"figures", figures_json(whole->compute())},
                {"merged", figures_json(merged_metric(parts, component.build(examples))->compute())}};
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

GroupRates rates_from(const json& group) {
  const json momentum = group.value("momentum", json());
  return {group.at("lr").get<double>(),
          momentum.is_null() ? std::nullopt : std::optional<double>(momentum.get<double>())};
}

std::set<int64_t> numbers(const Request& request, const char* key) {
  return request.has(key) ? request[key].get<std::set<int64_t>>() : std::set<int64_t>();
}

/// The loss that optimizers with a closure are tried on: convex, least at `goals`. Leaves its gradients in
/// `parameters`.
at::Tensor distance(const NamedTensors& parameters, const TensorMap& goals) {
  at::Tensor loss = at::zeros({}, parameters[0].second.options());
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad().reset();
    const at::Tensor off = parameter - goals.at(name);
    loss = loss + ((off.square() * (goals.at(name).abs() + 0.5)).sum() + 0.1 * off.pow(4).sum());
  }
  loss.backward();
  return loss.detach();
}

/// Steps on "parameter.NAME" with the gradients "STEP.NAME", or those of the distance to "goal.NAME"; before the steps
/// in `reload_before` the optimizer is made anew from what the old one saves. `rates`: of every step and group, or
/// those of the recipe.
json run_optimizer(Request& request) {
  const auto component = request.spec<Component<OptimizerKind>>();
  NamedTensors parameters;
  for (const auto& [name, tensor] : request.tensors("parameter")) {
    parameters.emplace_back(name, tensor.clone().set_requires_grad(true));
  }
  const auto make = [&] { return component.build(group_parameters(component, parameters)); };
  const std::set<int64_t> reload_before = numbers(request, "reload_before");
  const TensorMap goals = request.tensors("goal");
  auto optimizer = make();
  for (int64_t step = 0; step < request.number("steps"); ++step) {
    if (reload_before.contains(step)) {
      TensorMap saved;
      for (const auto& [name, tensor] : optimizer->state()) saved[name] = tensor.to(at::kCPU, false, true);
      optimizer = make();
      optimizer->load_state(saved);
    }
    const TensorMap gradients = request.tensors(std::to_string(step));
    for (const auto& [name, tensor] : parameters) {
      tensor.mutable_grad() = gradients.contains(name) ? gradients.at(name) : at::Tensor();
    }
    StepContext context = {optimizer->initial_rates()};
    for (size_t group = 0; request.has("rates") && group < context.rates.size(); ++group) {
      context.rates[group] = rates_from(request["rates"].at(step).at(group));
    }
    context.closure = [&] {
      if (goals.empty()) throw Error("the probe has no loss to compute anew");
      return distance(parameters, goals);
    };
    optimizer->step(context);
    request.give(std::to_string(step), parameters);
  }
  request.give("state", optimizer->state());
  return json::object();
}

/// Seconds of each of `steps` steps on `tensors` parameters of `numel` elements, after some that warm up.
json time_optimizer(Request& request) {
  const auto component = request.spec<Component<OptimizerKind>>();
  NamedTensors parameters;
  const std::vector<int64_t> shape = request["shape"];
  for (int64_t i = 0; i < request.number("num_parameters"); ++i) {
    parameters.emplace_back(std::to_string(i) + ".weight", at::randn(shape).set_requires_grad(true));
    parameters.back().second.mutable_grad() = at::randn(shape);
  }
  const auto optimizer = component.build(group_parameters(component, parameters));
  const auto step = [&] { optimizer->step({optimizer->initial_rates(), [] { return at::zeros({}); }}); };
  for (int64_t i = 0; i < 5; ++i) step();
  json seconds = json::array();
  for (int64_t i = 0; i < request.number("steps"); ++i) {
    const auto start = std::chrono::steady_clock::now();
    step();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return {{"seconds", seconds}};
}

/// Rates of every group before each of `steps` steps. After step t `metrics[t]` is observed, unless it is null ("nan"
/// and "inf" are numbers too); before the steps in `reload_before` the scheduler is made anew from what the old one
/// saves.
json run_scheduler(Request& request) {
  const auto component = request.spec<Component<SchedulerKind>>();
  SchedulerInputs inputs;
  for (const json& group : request["base"]) inputs.base.push_back(rates_from(group));
  inputs.total_steps = request.number("total_steps");
  const std::set<int64_t> reload_before = numbers(request, "reload_before");
  auto scheduler = component.build(inputs);
  std::vector<GroupRates> rates = inputs.base;
  json lr = json::array();
  json momentum = json::array();
  for (int64_t t = 0; t < request.number("steps"); ++t) {
    if (reload_before.contains(t)) {
      const json saved = scheduler->state();
      scheduler = component.build(inputs);
      if (!saved.is_null()) scheduler->load_state(saved);
    }
    scheduler->set(t, rates);
    lr.push_back(json::array());
    momentum.push_back(json::array());
    for (const GroupRates& group : rates) {
      lr.back().push_back(group.lr);
      momentum.back().push_back(group.momentum ? json(*group.momentum) : json());
    }
    if (request.has("metrics") && !request["metrics"].at(t).is_null()) {
      const json& metric = request["metrics"].at(t);
      scheduler->observe(metric.is_string() ? std::stod(metric.get<std::string>()) : metric.get<double>());
    }
  }
  return {{"lr", lr}, {"momentum", momentum}, {"monitor", scheduler->monitor()}};
}

/// The model of a recipe, as a job has it before its first step: its state dict, and, where inputs are given
/// ("input.image"), what the last layer gives in evaluation.
json run_model(Request& request) {
  Catalog catalog = request.catalog();
  const auto overrides = request["overrides"].get<std::vector<std::string>>();
  const Recipe recipe = load_recipe(request["recipe"], overrides, catalog).recipe;
  at::manual_seed(static_cast<uint64_t>(recipe.seed));
  Model model(recipe, training_info(recipe));
  const std::vector<std::string> passed_over = load_initial_weights(recipe, model);
  request.give("state", model.state_dict());
  Batch batch;
  for (const auto& [name, tensor] : request.tensors("input")) batch.set(name, tensor);
  const std::vector<std::string> notes = pretrained_notes(model.graph());
  if (batch.fields().empty()) return {{"passed_over", passed_over}, {"notes", notes}};
  const at::NoGradGuard no_gradients;
  model.train(false);
  request.give("output", "0", model.forward(batch)[0]);
  return {{"passed_over", passed_over}, {"notes", notes}};
}

/// A whole run of the recipe; its weights at the end.
json run_training(Request& request) {
  Catalog catalog = request.catalog();
  NamedTensors state;
  const std::string device = request.has("device") ? request["device"].get<std::string>() : "";
  json reply =
      train_recipe(request["recipe"], request["overrides"].get<std::vector<std::string>>(), catalog, state, device);
  request.give("state", state);
  return reply;
}

/// A recipe's training batches.
json run_batches(Request& request) {
  Catalog catalog = request.catalog();
  const WantedBatches wanted = {request.number("rank"), request.number("world_size"), request.number("epoch"),
                                request.number("start")};
  request.give("output",
               batches_of(request["recipe"], request["overrides"].get<std::vector<std::string>>(), catalog, wanted));
  return json::object();
}

DatasetInfo info_of(const TensorMap& fields, std::optional<int64_t> num_classes) {
  DatasetInfo info;
  for (const auto& [name, tensor] : fields) {
    const auto shape = tensor.sizes().slice(1).vec();
    info.fields.push_back({name, shape, tensor.scalar_type(), name == "label" ? num_classes : std::nullopt});
  }
  return info;
}

/// The batch "input.NAME" changed, with a generator seeded `seed`; "learn": what a transform that learns sees before,
/// in two batches. What it learnt goes by way of its saved state.
json run_transform(Request& request) {
  const auto component = request.spec<Component<TransformKind>>();
  const auto num_classes = request.has("num_classes") ? std::optional(request.number("num_classes")) : std::nullopt;
  DatasetInfo info = info_of(request.tensors("input"), num_classes);
  const auto learning = component.build({info});
  const auto transform = component.build({info});
  transform->describe(info);
  if (learning->learns()) {
    int64_t half = 0;
    learning->learn([&]() -> std::optional<Batch> {
      if (half == 2) return std::nullopt;
      Batch batch;
      for (const auto& [name, tensor] : request.tensors("learn")) {
        const int64_t first = tensor.size(0) / 3;
        batch.set(name, half == 0 ? tensor.narrow(0, 0, first) : tensor.narrow(0, first, tensor.size(0) - first));
      }
      ++half;
      return batch;
    });
    transform->set_learnt(json::parse(learning->learnt().dump()));
  }
  Batch batch;
  for (const auto& [name, tensor] : request.tensors("input")) batch.set(name, tensor);
  std::vector<int64_t> numbers(static_cast<size_t>(batch.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  transform->apply(batch, SampleDraws({static_cast<uint64_t>(request.number("seed"))}, numbers));
  for (const FieldInfo& field : info.fields) {
    const at::Tensor& tensor = batch.at(field.name);
    if (tensor.sizes().slice(1) != at::IntArrayRef(field.shape) || tensor.scalar_type() != field.dtype) {
      throw Error(field.name + " is not as described");
    }
    request.give("output", field.name, tensor);
  }
  return json::object();
}

/// All samples of a data set, which learns from the first `learn` of them; or from what "learnt" says.
json run_dataset(Request& request) {
  const auto dataset = request.spec<Component<DatasetKind>>().build({});
  dataset->open();
  if (request.has("learnt") && !request["learnt"].is_null()) {
    dataset->set_learnt(request["learnt"]);
  } else {
    dataset->learn(at::arange(dataset->size(), at::kLong));
  }
  Batch batch = dataset->get(at::arange(dataset->size(), at::kLong));
  float64_to_floats()->apply(batch, SampleDraws({}, {}));
  const DatasetInfo info = dataset->info();
  json names = json::array();
  for (size_t i = 0; i < info.fields.size(); ++i) {
    const FieldInfo& field = info.fields[i];
    const at::Tensor& tensor = batch.at(field.name);
    std::vector<int64_t> sizes = tensor.sizes().slice(1).vec();
    const bool is_padded = dataset->facts().field(field.name).padding.has_value();  // to the longest of this batch
    if (is_padded && sizes.at(0) <= field.shape.at(0)) sizes[0] = field.shape[0];
    if (sizes != field.shape || tensor.scalar_type() != field.dtype) {
      throw Error(field.name + " is not as described");
    }
    names.push_back(field.name);
    request.give("output", field.name, tensor);
  }
  if (request.has("epoch")) {
    const OwnOrder order = dataset->facts().own_order;
    request.give("order", "0", order(static_cast<uint64_t>(request.number("seed")), request.number("epoch")));
  }
  return {{"learnt", dataset->learnt()}, {"fields", names}, {"target", info.target}};
}

/// The part of each sample.
json run_partition(Request& request) {
  Partition partition{request["weights"].get<std::vector<int64_t>>()};
  partition.classes = request["classes"].get<std::vector<int64_t>>();
  partition.groups = request["groups"].get<std::vector<int64_t>>();
  if (!request["seed"].is_null()) partition.seed = static_cast<uint64_t>(request.number("seed"));
  return {{"parts", partition.parts()}};
}

/// What became of changed files.
json run_fuzz(Request& request) {
  return run_fuzzer(request.catalog(), request.fields(), examples_of(request.tensors("input")));
}

json run_encode(Request& request) {
  TensorMap results;
  json reply = encode_texts(request.fields(), request.tensors("first"), request.tensors("second"), results);
  for (const auto& [name, tensor] : results) request.give("ids", name, tensor);
  return reply;
}

json run_decode(Request& request) {
  TensorMap results;
  json reply = decode_ids(request.fields(), request.tensors("ids"), results);
  for (const auto& [name, tensor] : results) request.give("text", name, tensor);
  return reply;
}

json run_templates(Request& request) { return render_templates(request.fields()); }
json run_chats(Request& request) { return render_chats(request.fields()); }

json run_next_logits(Request& request) {
  TensorMap results;
  json reply = next_logits(request.catalog(), request.fields(), results);
  for (const auto& [name, tensor] : results) request.give("logits", name, tensor);
  return reply;
}

json run_next_scores(Request& request) {
  TensorMap results;
  json reply = next_scores(request.fields(), request.tensors("input").at("logits"), results);
  for (const auto& [name, tensor] : results) request.give("next", name, tensor);
  return reply;
}

/// The order of an epoch's samples.
json run_sampler(Request& request) {
  const TensorMap drawing = request.tensors("drawing");
  SamplerOptions options;
  options.seed = static_cast<uint64_t>(request.number("seed"));
  options.drawing.num_samples = request.number("num_samples");
  options.drawing.replacement = request["replacement"].get<bool>();
  if (drawing.contains("weights")) options.drawing.weights = drawing.at("weights");
  if (drawing.contains("strata")) options.drawing.strata = drawing.at("strata");
  const Sampler sampler(drawing.begin()->second.numel(), options);
  request.give("order", "0", sampler.indices(request.number("epoch")));
  return json::object();
}

json answer(const Catalog& catalog, const json& fields) {
  static const std::map<std::string, json (*)(Request&)> operations = {{"batches", run_batches},
                                                                       {"catalog", list_catalog},
                                                                       {"chats", run_chats},
                                                                       {"dataset", run_dataset},
                                                                       {"fuzz", run_fuzz},
                                                                       {"layer", run_layer},
                                                                       {"loss", run_loss},
                                                                       {"metric", run_metric},
                                                                       {"model", run_model},
                                                                       {"next_logits", run_next_logits},
                                                                       {"next_scores", run_next_scores},
                                                                       {"optimizer", run_optimizer},
                                                                       {"sampler", run_sampler},
                                                                       {"scheduler", run_scheduler},
                                                                       {"shapes", run_shapes},
                                                                       {"time_optimizer", time_optimizer},
                                                                       {"train", run_training},
                                                                       {"transform", run_transform},
                                                                       {"partition", run_partition},
                                                                       {"templates", run_templates},
                                                                       {"encode", run_encode},
                                                                       {"decode", run_decode}};
  Request request(catalog, fields);
  json reply = operations.at(fields.at("op"))(request);
  request.write_results();
  return reply;
}

}  // namespace
}  // namespace trainrun

int main() {
  trainrun::install_library_changes();
  if (std::getenv("TRAINRUN_IMAGINED_GPU")) trainrun::imagine_gpu();
  trainrun::Catalog catalog = trainrun::builtins();
  trainrun::add_loggers(catalog.loggers);
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json reply;
    try {
      reply = trainrun::answer(catalog, nlohmann::json::parse(line));
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    // a damaged file's error may quote what is no UTF-8
    std::cout << reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n' << std::flush;
  }
  std::_Exit(0);  // as tools/main.cpp does
}
