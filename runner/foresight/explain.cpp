#include "runner/foresight/explain.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "registry/components/schedulers/chainable.h"
#include "registry/graph/flatten.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/build.h"
#include "registry/kinds/dataset_facts.h"
#include "runner/base/arithmetic.h"
#include "runner/base/torch_versions.h"
#include "runner/data/data_contract.h"
#include "runner/foresight/optimizer_memory.h"
#include "runner/model/example_batch.h"
#include "runner/model/model.h"
#include "runner/train/job.h"

namespace trainrun {
namespace {

constexpr int64_t kMostSteps = 2'000'000;  // that a scheduler which goes from step to step is followed
constexpr int64_t kRatePoints = 61;        // a multiple of ten intervals, so that every tenth of the job is among them

/// Runs the layers of a model one by one in the shape mode and writes down what each is and does. The parts that a
/// layer of the recipe is made of have no row: what they do, it does.
class LayerWalk {
 public:
  /// Bytes that steps of the `plan` do not keep are in `recomputed`, not in a row.
  /// Parameters that are `late` are frozen at first.
  LayerWalk(const Graph& graph, const Plan& plan, const Tensors& late, std::vector<LayerSummary>& rows,
            std::vector<RecomputedSummary>& recomputed)
      : flat_(flatten(graph)), rows_(rows), recomputed_(recomputed) {
    for (const at::Tensor& parameter : late) late_.insert(parameter.unsafeGetTensorImpl());
    for (const PlanStep& step : plan.steps) {
      if (!step.inside) continue;
      steps_.push_back(&step);
      recomputed_.push_back({step.layer, 0});
    }
  }

  void run(const Tensors& inputs) {
    slots_.assign(inputs.begin(), inputs.end());
    slots_.resize(flat_.num_slots);
    for (size_t i = 0; i < flat_.layers.size();) i = walk(i, nullptr, 0, 0);
  }

 private:
  /// The layer `index` and those within, whose depth is at least `depth`; returns what comes after them. `around` and
  /// its `row`: the layer of the recipe that it lies in.
  size_t walk(size_t index, const FlatLayer* around, size_t row, int depth) {
    const FlatLayer& layer = flat_.layers[index];
    const bool has_row = layer.node->is_written || !around;
    if (has_row) {
      around = &layer;
      row = add_row(index, depth);
    }
    if (layer.is_leaf()) compute(index, *around, rows_[row]);
    for (size_t i = index + 1; i < layer.end;) i = walk(i, around, row, depth + (has_row ? 1 : 0));
    if (has_row && layer.node->layer.state) count_parameters(*layer.node->layer.state, rows_[row]);
    return layer.end;
  }

  size_t add_row(size_t index, int depth) {
    const FlatLayer& layer = flat_.layers[index];
    LayerSummary row;
    row.name = layer.name;
    row.type = layer.node->type;
    row.depth = depth;
    for (size_t i = index + 1; i < layer.end; ++i) row.is_container |= flat_.layers[i].node->is_written;
    for (const auto& shape : layer.node->output_shapes) row.output_shapes.push_back(shape_text(shape));
    rows_.push_back(std::move(row));
    return rows_.size() - 1;
  }

  /// `around`: the layer itself, or the one that it is a part of, to whose `row` the work is added.
  void compute(size_t index, const FlatLayer& around, LayerSummary& row) {
    const FlatLayer& layer = flat_.layers[index];
    Tensors arguments;
    for (const size_t slot : layer.inputs) arguments.push_back(slots_[slot]);
    const int64_t flops_before = ShapeMode::flops();
    const Tensors outputs = layer.node->layer.operation->run(arguments);
    row.flops += (ShapeMode::flops() - flops_before) / kExampleBatch;
    for (size_t i = 0; i < layer.outputs.size(); ++i) {
      const size_t slot = layer.outputs[i];
      slots_[slot] = outputs[i];
      const bool comes_out = std::find(around.outputs.begin(), around.outputs.end(), slot) != around.outputs.end();
      if (comes_out && !is_view(outputs[i], around))
        bytes_of(index, slot, row) += static_cast<int64_t>(outputs[i].nbytes()) / kExampleBatch;
    }
  }

  /// Where the bytes of a layer's output count.
  int64_t& bytes_of(size_t index, size_t slot, LayerSummary& row) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      const PlanStep& step = *steps_[i];
      const bool comes_out = std::find(step.outputs.begin(), step.outputs.end(), slot) != step.outputs.end();
      if (index >= step.first && index < step.end && !comes_out) return recomputed_[i].activation_bytes;
    }
    return row.activation_bytes;
  }

  bool is_view(const at::Tensor& output, const FlatLayer& around) const {
    return std::any_of(around.inputs.begin(), around.inputs.end(),
                       [&](size_t slot) { return output.is_alias_of(slots_[slot]); });
  }

  /// Those that no row before this one has: not those of layers within, nor those shared with an earlier layer.
  void count_parameters(const torch::nn::Module& module, LayerSummary& row) {
    for (const at::Tensor& parameter : module.parameters()) {
      if (!counted_.insert(parameter.unsafeGetTensorImpl()).second) continue;
      row.parameters += parameter.numel();
      if (parameter.requires_grad()) row.trainable_parameters += parameter.numel();
      if (late_.contains(parameter.unsafeGetTensorImpl())) row.late_parameters += parameter.numel();
    }
  }

  FlatGraph flat_;
  std::vector<LayerSummary>& rows_;
  std::vector<RecomputedSummary>& recomputed_;
  std::vector<const PlanStep*> steps_;  // as many
  Tensors slots_;
  std::set<const at::TensorImpl*> counted_;
  std::set<const at::TensorImpl*> late_;
};

void explain_layers(const Recipe& recipe, Model& model, const DatasetInfo& info, Explanation& result) {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  const Tensors inputs = example_batch(info).examples;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const FieldInfo& field = info.fields[i];
    LayerSummary row;
    row.name = field.name;
    row.type = field.name == info.target ? "target" : "input";
    row.output_shapes = {shape_text(inputs[i].sizes()) + " " + dtype_name(field.dtype)};
    if (field.num_classes) {
      const std::string number = std::to_string(*field.num_classes);
      row.output_shapes[0] += ", " + (field.name == info.target ? number + " classes" : "below " + number);
    }
    result.layers.push_back(row);
    result.memory.batch += static_cast<int64_t>(inputs[i].nbytes()) / kExampleBatch;
  }
  const Tensors late = model.frozen_for_now(recipe, model.parameters());
  LayerWalk(model.graph(), model.plan(), late, result.layers, result.recomputed).run(inputs);
  for (const LayerSummary& layer : result.layers) {
    result.flops += layer.flops;
    result.memory.activations += layer.activation_bytes;
  }
  int64_t most = 0;  // one at a time is there again
  for (const RecomputedSummary& layer : result.recomputed) most = std::max(most, layer.activation_bytes);
  result.memory.activations += most;
  for (const auto& [name, tensor] : model.parameters()) {
    result.parameters += tensor.numel();
    if (!tensor.requires_grad()) continue;
    result.trainable_parameters += tensor.numel();
    result.memory.gradients += static_cast<int64_t>(tensor.nbytes());
  }
  for (const at::Tensor& tensor : late) result.late_parameters += tensor.numel();
  result.unfreeze_at_epoch = recipe.model.unfreeze_at_epoch;
  for (const auto& [name, tensor] : model.state_dict()) result.memory.weights += static_cast<int64_t>(tensor.nbytes());
  if (model.roles()) result.memory.weights += model.roles()->num_bytes();
}

/// What a checkpoint holds, as make_own copies it: a tensor that has several names once.
int64_t checkpoint_bytes(const Model& model, int64_t optimizer_state) {
  int64_t bytes = optimizer_state;
  std::set<const at::TensorImpl*> counted;
  for (const auto& [name, tensor] : model.state_dict()) {
    if (counted.insert(tensor.unsafeGetTensorImpl()).second) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
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

void list_changed(const Plan& plan, Explanation& result) {
  for (const PlanStep& step : plan.steps) {
    if (step.inside) list_changed(*step.inside, result);
    if (!step.fusion.empty()) result.fused.push_back({step.layer, step.type, step.fusion});
    if (!step.positions.empty()) result.positions[step.positions] += static_cast<int64_t>(step.leaves.size());
  }
}

/// Of all sets of evaluation data together; nothing where one is not known before it is opened.
std::optional<int64_t> samples_of_evaluation(const Recipe& recipe) {
  int64_t sum = 0;
  for (size_t i = 0; i < recipe.dataset.eval->sets.size(); ++i) {
    const auto samples = evaluation_info(recipe, i).num_samples;
    if (!samples) return std::nullopt;
    sum = saturating_sum(sum, *samples);
  }
  return sum;
}

}  // namespace

LengthSummary explain_length(const Recipe& recipe, const DatasetInfo& info) {
  LengthSummary length;
  length.batch_size = recipe.dataloader.batch_size;
  length.pieces = recipe.dataloader.pieces;
  length.num_processes = recipe.num_processes;
  length.gradient_accumulation_steps = recipe.training.gradient_accumulation_steps;
  length.group_by_length = recipe.dataloader.group_by_length;
  length.num_epochs = recipe.training.num_epochs;
  length.train_samples = info.num_samples;
  if (recipe.dataset.eval) length.eval_samples = samples_of_evaluation(recipe);
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
  const auto train = build_at_place(recipe.dataset.train, {});
  result.contract = DataContract::of(*train, nullptr).lines();
  result.inferred = train->facts().inferred();
  if (!result.inferred.contains("columns")) result.inferred = nullptr;  // classes alone
  explain_layers(recipe, *model, info, result);
  list_changed(model->plan(), result);
  result.length = explain_length(recipe, info);
  result.memory.activations *= result.length.batch_size;
  result.memory.batch *= result.length.batch_size;
  const OptimizerInputs inputs = group_parameters(recipe.optimizer, model->parameters(), model->lr_scales(recipe));
  result.memory.optimizer_state = optimizer_state_bytes(recipe.optimizer, inputs);
  if (recipe.checkpoint.every && recipe.checkpoint.background) {
    result.memory.checkpoint_copy = checkpoint_bytes(*model, result.memory.optimizer_state);
  }
  std::vector<GroupRates> base;
  {
    const ShapeMode shapes;
    base = build_at_place(recipe.optimizer, inputs)->initial_rates();
  }
  for (GroupRates& group : base) group.lr *= recipe.lr_factor(recipe.num_processes);
  result.groups = explain_groups(recipe.optimizer, inputs, base);
  explain_rates(recipe, base, result);
  return result;
}

}  // namespace trainrun
