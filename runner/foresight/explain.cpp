#include "runner/foresight/explain.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "registry/build.h"
#include "registry/datasets/data_details.h"
#include "registry/schedulers/chainable.h"
#include "registry/shape_mode.h"
#include "runner/base/arithmetic.h"
#include "runner/foresight/optimizer_memory.h"
#include "runner/model/model.h"
#include "runner/train/job.h"

namespace trainrun {
namespace {

constexpr int64_t kMostSteps = 2'000'000;  // that a scheduler which goes from step to step is followed
constexpr int64_t kRatePoints = 61;        // a multiple of ten intervals, so that every tenth of the job is among them

int64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * tensor.element_size(); }

/// The graphs of layers that a layer holds, by name: itself, or children of a container.
std::vector<std::pair<std::string, std::shared_ptr<Graph>>> graphs_within(
    const std::shared_ptr<torch::nn::Module>& module) {
  if (!module) return {};
  if (const auto graph = std::dynamic_pointer_cast<Graph>(module)) return {{"", graph}};
  std::vector<std::pair<std::string, std::shared_ptr<Graph>>> graphs;
  for (const auto& child : module->named_children()) {
    for (auto& [name, graph] : graphs_within(child.value())) {
      graphs.emplace_back(name.empty() ? child.key() : child.key() + "." + name, graph);
    }
  }
  return graphs;
}

/// Runs the layers of a graph one by one in the shape mode and writes down what each is and does.
class LayerWalk {
 public:
  explicit LayerWalk(std::vector<LayerSummary>& rows) : rows_(rows) {}

  void walk(Graph& graph, const Tensors& inputs, const std::string& prefix, int depth) {
    Tensors slots(graph.num_slots());
    std::copy(inputs.begin(), inputs.end(), slots.begin());
    for (const Graph::Node& node : graph.nodes()) {
      Tensors arguments;
      for (const size_t slot : node.inputs) arguments.push_back(slots[slot]);
      const Tensors outputs = add(node, arguments, prefix, depth);
      for (size_t i = 0; i < node.outputs.size(); ++i) slots[node.outputs[i]] = outputs[i];
    }
  }

 private:
  Tensors add(const Graph::Node& node, const Tensors& arguments, const std::string& prefix, int depth) {
    const size_t own_row = rows_.size();
    LayerSummary row;
    row.name = prefix + node.name;
    row.type = node.type;
    row.depth = depth;
    for (const auto& shape : node.output_shapes) row.output_shapes.push_back(shape_text(shape));
    const int64_t flops_before = ShapeMode::flops();
    const Tensors outputs = node.layer.forward(arguments);
    row.flops = (ShapeMode::flops() - flops_before) / kExampleBatch;
    const auto graphs = graphs_within(node.layer.state);
    row.is_container = !graphs.empty();
    const bool is_graph = row.is_container && graphs[0].first.empty();  // its outputs are those of a layer within
    if (!is_graph) row.activation_bytes = new_bytes(outputs, arguments);
    rows_.push_back(row);
    for (const auto& [name, graph] : graphs) {
      const size_t first = rows_.size();
      walk(*graph, arguments, row.name + "." + (name.empty() ? "" : name + "."), depth + 1);
      for (size_t i = first; i < rows_.size(); ++i) rows_[own_row].flops -= rows_[i].flops;
    }
    rows_[own_row].flops = std::max<int64_t>(0, rows_[own_row].flops);
    if (node.layer.state) rows_[own_row].parameters = count_parameters(*node.layer.state);
    return outputs;
  }

  /// Those that no row before this one has: not those of layers within, nor those shared with an earlier layer.
  int64_t count_parameters(const torch::nn::Module& module) {
    int64_t count = 0;
    for (const at::Tensor& parameter : module.parameters()) {
      if (counted_.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
    }
    return count;
  }

  /// Of one sample.
  static int64_t new_bytes(const Tensors& outputs, const Tensors& inputs) {
    int64_t bytes = 0;
    for (const at::Tensor& output : outputs) {
      const bool is_view =
          std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) { return output.is_alias_of(input); });
      if (!is_view) bytes += bytes_of(output) / kExampleBatch;
    }
    return bytes;
  }

  std::vector<LayerSummary>& rows_;
  std::set<const at::TensorImpl*> counted_;
};

std::vector<int64_t> example_sizes(const FieldInfo& field) {
  std::vector<int64_t> sizes = {kExampleBatch};
  sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
  return sizes;
}

void explain_layers(Model& model, const DatasetInfo& info, Explanation& result) {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  Tensors inputs;
  for (const FieldInfo& field : info.fields) {
    LayerSummary row;
    row.name = field.name;
    row.type = field.name == info.target ? "target" : "input";
    row.output_shapes = {shape_text(example_sizes(field)) + " " + c10::getDtypeNames(field.dtype).first};
    if (field.num_classes) {
      const std::string number = std::to_string(*field.num_classes);
      row.output_shapes[0] += ", " + (field.name == info.target ? number + " classes" : "below " + number);
    }
    result.layers.push_back(row);
    inputs.push_back(at::empty(example_sizes(field), field.dtype));
    result.memory.batch += bytes_of(inputs.back()) / kExampleBatch;
  }
  LayerWalk(result.layers).walk(model.graph(), inputs, "", 0);
  for (const LayerSummary& layer : result.layers) {
    result.flops += layer.flops;
    result.memory.activations += layer.activation_bytes;
  }
  for (const auto& [name, tensor] : model.parameters()) {
    result.parameters += tensor.numel();
    if (!tensor.requires_grad()) continue;
    result.trainable_parameters += tensor.numel();
    result.memory.gradients += bytes_of(tensor);
  }
  for (const auto& [name, tensor] : model.state_dict()) result.memory.weights += bytes_of(tensor);
}

/// A data set of which nothing is known but its size: enough to count batches.
class Counted : public Dataset {
 public:
  explicit Counted(int64_t size) : size_(size) {}
  DatasetInfo info() const override { return {}; }
  void open() override {}
  int64_t size() const override { return size_; }
  Batch get(const at::Tensor&) const override { return {}; }

 private:
  int64_t size_;
};

/// "weight_decay: 0, lr: 0.1"
std::string overrides_text(const Value& overrides) {
  std::string text;
  for (const Value::Entry& entry : overrides.entries()) {
    const Value& value = entry.value;
    std::vector<std::string> items;
    for (const Value& item : value.items()) items.push_back(item.text());
    text += (text.empty() ? "" : ", ") + entry.key + ": " + (value.is_list() ? "[" + join(items) + "]" : value.text());
  }
  return text;
}

std::vector<GroupSummary> explain_groups(const Component<OptimizerKind>& optimizer, const OptimizerInputs& inputs,
                                         const std::vector<GroupRates>& rates) {
  std::vector<GroupSummary> groups;
  for (size_t i = 0; i < inputs.groups.size(); ++i) {
    GroupSummary group;
    for (const GroupSpec& spec : optimizer.common.param_groups) {
      if (spec.options != inputs.groups[i].options) continue;
      group.match = spec.match;
      group.overrides = overrides_text(spec.overrides);
    }
    group.tensors = static_cast<int64_t>(inputs.groups[i].tensors.size());
    for (const at::Tensor& tensor : inputs.groups[i].tensors) group.parameters += tensor.numel();
    group.lr = rates[i].lr * rates[i].lr_scale;
    groups.push_back(group);
  }
  return groups;
}

void explain_rates(const Recipe& recipe, const std::vector<GroupRates>& base, Explanation& result) {
  const LengthSummary& length = result.length;
  if (!recipe.scheduler) {
    std::vector<GroupRates> constant = base;
    scale_rates(constant);
    if (length.total_steps) result.rates = {{0, constant}, {*length.total_steps - 1, constant}};
    return;
  }
  result.scheduler = recipe.scheduler->type;
  const bool by_epoch = recipe.scheduler->common.interval == Interval::kEpoch;
  if (!length.total_steps || (by_epoch && !length.steps_per_epoch)) return;
  const int64_t total = *length.total_steps;
  const int64_t unit = by_epoch ? *length.steps_per_epoch : 1;
  const auto scheduler = build_at_place(*recipe.scheduler, {base, (total + unit - 1) / unit});
  result.monitor = scheduler->monitor();
  const bool goes_step_by_step = dynamic_cast<const ChainableScheduler*>(scheduler.get()) != nullptr;
  const int64_t shown = goes_step_by_step && total / unit > kMostSteps ? kMostSteps * unit : total;
  for (int64_t i = 0; i < kRatePoints; ++i) {
    RatePoint point;
    point.step = std::llround(static_cast<double>(i) * static_cast<double>(shown - 1) / (kRatePoints - 1));
    point.rates = base;
    scheduler->set(point.step / unit, point.rates);
    scale_rates(point.rates);
    result.rates.push_back(point);
  }
}

}  // namespace

LengthSummary explain_length(const Recipe& recipe, const DatasetInfo& info) {
  LengthSummary length;
  length.batch_size = recipe.dataloader.batch_size;
  length.num_processes = recipe.num_processes;
  length.gradient_accumulation_steps = recipe.training.gradient_accumulation_steps;
  length.num_epochs = recipe.training.num_epochs;
  length.train_samples = info.num_samples;
  if (recipe.dataset.eval) length.eval_samples = evaluation_info(recipe).num_samples;
  if (info.num_samples) {
    const Counted data(*info.num_samples);
    const int64_t window = length.gradient_accumulation_steps;
    length.batches_per_epoch =
        DataLoader(data, {}, loader_options(recipe, nullptr, true, 0, recipe.num_processes)).num_batches();
    length.steps_per_epoch = ceil_divide(*length.batches_per_epoch, window);
    if (length.num_epochs) length.total_steps = saturating_product(*length.num_epochs, *length.steps_per_epoch);
  }
  if (const auto limit = recipe.training.max_steps; limit && (length.total_steps || !length.num_epochs)) {
    length.total_steps = std::min(length.total_steps.value_or(*limit), *limit);
  }
  return length;
}

int64_t forward_flops(Model& model, const DatasetInfo& info) {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  Tensors inputs;
  for (const FieldInfo& field : info.fields) inputs.push_back(at::empty(example_sizes(field), field.dtype));
  const int64_t before = ShapeMode::flops();
  model.graph().forward(inputs);
  return (ShapeMode::flops() - before) / kExampleBatch;
}

Explanation explain(const LoadedRecipe& loaded) {
  const Recipe& recipe = loaded.recipe;
  Explanation result;
  result.name = recipe.name;
  result.path = loaded.path;
  for (const Component<LossKind>& loss : recipe.loss) {
    const double weight = loss.common.loss_weight;
    result.loss +=
        (result.loss.empty() ? "" : " + ") + (weight == 1 ? "" : detail::number_text(weight) + " ") + loss.type;
  }
  for (const Component<MetricKind>& metric : recipe.metrics) result.metrics.push_back(metric.type);
  result.optimizer = recipe.optimizer.type;
  const auto model = plan_model(recipe);
  const DatasetInfo info = training_info(recipe);
  result.inferred = inferred_of(*build_at_place(recipe.dataset.train, {}));
  explain_layers(*model, info, result);
  result.length = explain_length(recipe, info);
  result.memory.activations *= result.length.batch_size;
  result.memory.batch *= result.length.batch_size;
  const OptimizerInputs inputs = group_parameters(recipe.optimizer, model->parameters(), model->lr_scales());
  result.memory.optimizer_state = optimizer_state_bytes(recipe.optimizer, inputs);
  std::vector<GroupRates> base;
  {
    const ShapeMode shapes;
    base = build_at_place(recipe.optimizer, inputs)->rates;
  }
  result.groups = explain_groups(recipe.optimizer, inputs, base);
  explain_rates(recipe, base, result);
  return result;
}

}  // namespace trainrun
