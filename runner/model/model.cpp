#include "runner/model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "registry/components/losses/without_dropout.h"
#include "registry/graph/shape_mode.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/graph_builder.h"
#include "registry/kinds/metric_details.h"
#include "registry/tensors/fault.h"
#include "runner/data/pixels.h"
#include "runner/model/example_batch.h"
#include "runner/model/index_checks.h"
#include "runner/model/metric_classes.h"
#include "runner/model/model_adapters.h"
#include "runner/model/precision.h"

namespace trainrun {
namespace {

/// Collects the faults of several components, so that all are told at once.
class Faults {
 public:
  template <class Body>
  void of(const Place& place, const std::string& path, const std::string& what, const Body& body) {
    try {
      at_place(place, path, what, body);
    } catch (const RecipeError& error) {
      problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
    }
  }
  void throw_if_any() const {
    if (!problems_.empty()) throw RecipeError(problems_);
  }

 private:
  std::vector<Problem> problems_;
};

/// Throws DataError where the recipe has the training samples drawn in another way than they draw themselves.
void require_own_draws(const Recipe& recipe, const Dataset& data) {
  if (!data.facts().draws_itself) return;
  if (recipe.dataloader.chosen_sampler()) {
    throw DataError("the samples of a Mixture are drawn by its weights, so there can be no dataloader.sampler");
  }
  if (!recipe.dataloader.shuffle) {
    throw DataError("the samples of a Mixture are drawn by its weights, so dataloader.shuffle must be true");
  }
}

/// `inferred`: for Dataset::set_inferred. `look` sees the data, which are not open.
DatasetInfo split_info(const Component<DatasetKind>& dataset, const std::vector<Component<TransformKind>>& first,
                       const std::vector<Component<TransformKind>>& then, const nlohmann::json& inferred,
                       const std::function<void(const Dataset&, DatasetInfo&)>& look = {}) {
  DatasetInfo info;
  at_place(dataset.place, dataset.path, "", [&] {
    const auto data = dataset.build({});
    data->set_inferred(inferred);
    info = data->info();
    if (look) look(*data, info);
  });
  pixels_to_floats(info);
  for (const auto* transforms : {&first, &then}) {
    for (const Component<TransformKind>& transform : *transforms) {
      at_place(transform.place, transform.path, "", [&] { transform.build({info})->describe(info); });
    }
  }
  return info;
}

/// Metrics see the batches of evaluation, whose labels no Mixup made soft.
DatasetInfo seen_by_metrics(DatasetInfo info, const DatasetInfo& evaluated) {
  for (FieldInfo& field : info.fields) {
    if (const FieldInfo* other = evaluated.find(field.name)) field = *other;
  }
  return info;
}

/// Whether what the model reads has other sizes in evaluations, such as whole pictures after training on crops.
bool changes_sizes(const DatasetInfo& info, const DatasetInfo& evaluated) {
  return std::any_of(info.fields.begin(), info.fields.end(), [&](const FieldInfo& field) {
    const FieldInfo* other = evaluated.find(field.name);
    return other && field.name != info.target && other->shape != field.shape;
  });
}

/// "[N, 10] and [N]"; what the recipe names comes with its name: "mean [N, 8] and log_var [N, 8]".
std::string shapes_text(const LayerInputs& inputs, const Names& names) {
  std::vector<std::string> shapes;
  for (size_t i = 0; i < inputs.examples.size(); ++i) {
    shapes.push_back((i < names.size() ? names[i] + " " : "") + shape_text(inputs.examples[i].sizes()));
  }
  return join(shapes, " and ");
}

/// Losses and metrics are computed in float32.
at::Tensor widened(const at::Tensor& output, std::optional<at::ScalarType> autocast_dtype) {
  return output.scalar_type() == autocast_dtype ? output.to(at::kFloat) : output;
}

}  // namespace

DatasetInfo training_info(const Recipe& recipe) {
  return split_info(recipe.dataset.train, recipe.dataset.train_transforms, recipe.dataset.transforms, nullptr,
                    [&](const Dataset& data, DatasetInfo& info) {
                      require_own_draws(recipe, data);
                      if (data.facts().draws_itself) info.num_samples = data.facts().num_drawn();  // of an epoch
                    });
}

DatasetInfo evaluation_info(const Recipe& recipe, size_t set) {
  const Component<DatasetKind>& train = recipe.dataset.train;
  nlohmann::json inferred;
  at_place(train.place, train.path, "", [&] { inferred = train.build({})->facts().inferred(); });
  return split_info(recipe.dataset.eval->sets[set].data, recipe.dataset.eval_transforms, recipe.dataset.transforms,
                    inferred);
}

Model::Model(const Recipe& recipe, const DatasetInfo& info, const DatasetInfo& evaluated)
    : info_(info), autocast_dtype_(autocast_dtype(recipe.mixed_precision)) {
  graph_ = build_model_graph(recipe.model.layers, example_batch(info));
  if (recipe.model.init) recipe.model.init->apply(parameters());
  if (recipe.model.adapters) adapters_ = std::make_shared<ModelAdapters>(*recipe.model.adapters, *graph_);
  freeze(recipe);
  outputs_ = {graph_->outputs()[0]};
  if (!recipe.models.entries.empty()) roles_ = std::make_shared<ModelRoles>(recipe, info, *this);
  build_losses(recipe);
  const bool has_other_sizes = changes_sizes(info_, evaluated);
  info_ = seen_by_metrics(info_, evaluated);
  if (has_other_sizes) {
    const ShapeMode shapes;
    evaluated_graph_ = build_model_graph(recipe.model.layers, example_batch(info_));
  }
  for (const Component<MetricKind>& metric : recipe.metrics) {
    metric_sources_.push_back(find_sources(metric.common.inputs, metric.place, metric.path));
  }
  check_metrics(recipe);
  graph_->set_outputs(outputs_);
  note_bfloat16_readers();
  if (recipe.training.fuse) plan_options_.fusions = recipe.fusions;
  if (plan_options_.fusions && recipe.training.convolutions == Convolutions::kDirect) {
    plan_options_.fusions = std::make_shared<const FusionRegistry>(plan_options_.fusions->without_fast_convolutions());
  }
  plan_options_.recomputed = recomputed_layers(recipe);
  plan_ = make_plan(*graph_, plan_options_);
}

void Model::set_brackets(std::vector<Bracket> brackets) {
  plan_options_.brackets = std::move(brackets);
  plan_ = make_plan(*graph_, plan_options_);
}

void Model::set_measure(std::function<std::shared_ptr<const Operation>(const PlanStep&)> measure) {
  plan_options_.measure = std::move(measure);
  plan_ = make_plan(*graph_, plan_options_);
}

void Model::build_losses(const Recipe& recipe) {
  Faults faults;
  for (const Component<LossKind>& loss : recipe.loss) {
    WeightedLoss built;
    built.weight = loss.common.loss_weight;
    built.sources = find_sources(loss.common.inputs, loss.place, loss.path);
    built.name = name_of(loss);
    const LayerInputs inputs = examples(built.sources, *graph_);
    built.facts = loss.facts(inputs);
    auto& counted = built.facts.counted;
    if (counted && recipe.dataloader.pieces > 1) counted->in_steps = true;  // the mean is over the batch, not a piece
    if (built.counts(LossUse::kStep) &&
        (built.sources.size() <= counted->input || built.sources[counted->input].field.empty())) {
      throw RecipeError({{loss.place, loss.path,
                          "counts its targets before the model has run, so they must be a field of the batch, not the "
                          "output of a layer" +
                              (counted->otherwise.empty() ? "" : "; " + counted->otherwise)}});
    }
    const std::string what = loss.type + " does not fit " + shapes_text(inputs, loss.common.inputs) + ": ";
    faults.of(loss.place, loss.path, what, [&] {
      {
        const ShapeMode shapes;
        const c10::AutoGradMode no_gradients(false);
        const Loss trial = [&] {
          try {
            return loss.build(inputs);
          } catch (const LayerError& error) {
            throw LayerError(error.what() + advice_on_outputs(recipe, *graph_, info_, loss));
          }
        }();
        const at::Tensor value = trial.forward(inputs.examples);
        TORCH_CHECK(value.numel() == 1, "it gives ", value.sizes(), ", not one number");
      }
      built.loss = loss.build(inputs);
      built.loss.forward = [name = name_of(loss), forward = built.loss.forward](const Tensors& given) {
        return as_component(name, given, [&] { return forward(given); });
      };
    });
    losses_.push_back(std::move(built));
  }
  faults.throw_if_any();
}

std::vector<std::unique_ptr<Metric>> Model::build_metrics(const Recipe& recipe) const {
  Faults faults;
  std::vector<std::unique_ptr<Metric>> metrics;
  for (size_t i = 0; i < recipe.metrics.size(); ++i) {
    const Component<MetricKind>& metric = recipe.metrics[i];
    const LayerInputs inputs = examples(metric_sources_[i], evaluated_graph_ ? *evaluated_graph_ : *graph_);
    const std::string what = metric.type + " does not fit " + shapes_text(inputs, metric.common.inputs) + ": ";
    faults.of(metric.place, metric.path, what, [&] { metrics.push_back(metric.build(inputs)); });
  }
  faults.throw_if_any();
  for (size_t i = 0; i < metrics.size(); ++i) {
    const std::vector<std::string> names = label_names(recipe, metric_sources_[i]);
    if (!names.empty()) name_labels(*metrics[i], names);
  }
  name_classes(metrics, recipe, info_, written_classes(recipe));
  return metrics;
}

std::vector<std::string> Model::label_names(const Recipe& recipe, const std::vector<Source>& sources) const {
  if (sources.size() < 2 || sources[1].field.empty()) return {};
  const FieldInfo& target = *info_.find(sources[1].field);
  if (target.shape.size() != 1) return {};
  const Component<DatasetKind>& train = recipe.dataset.train;
  std::vector<std::string> names;
  at_place(train.place, train.path, "", [&] { names = train.build({})->facts().field(target.name).names_within; });
  const std::set<std::string> distinct(names.begin(), names.end());
  const bool are_figure_names =
      distinct.size() == names.size() && std::none_of(names.begin(), names.end(), [](const auto& name) {
        return name.empty() || name.find_first_of("/\t\n") != std::string::npos;
      });
  return are_figure_names ? names : std::vector<std::string>();
}

void Model::check_metrics(const Recipe& recipe) const {
  const ShapeMode shapes;
  const c10::AutoGradMode no_gradients(false);
  Faults faults;
  const auto metrics = build_metrics(recipe);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const Component<MetricKind>& metric = recipe.metrics[i];
    const LayerInputs inputs = examples(metric_sources_[i], evaluated_graph_ ? *evaluated_graph_ : *graph_);
    const std::string what = metric.type + " does not fit " + shapes_text(inputs, metric.common.inputs) + ": ";
    faults.of(metric.place, metric.path, what, [&] { metrics[i]->update(inputs.examples); });
  }
  faults.throw_if_any();
}

std::vector<Model::Source> Model::find_sources(const Names& names, const Place& place, const std::string& path) {
  const auto output = [&](size_t slot) {
    const auto it = std::find(outputs_.begin(), outputs_.end(), slot);
    const auto position = static_cast<size_t>(it - outputs_.begin());
    if (it == outputs_.end()) outputs_.push_back(slot);
    return Source{"", position};
  };
  if (names.empty() && info_.target.empty()) return {output(outputs_[0])};  // data without a target
  if (names.empty()) return {output(outputs_[0]), Source{info_.target, 0}};
  std::vector<Source> sources;
  for (const std::string& name : names) {
    const auto slot = graph_->slot(name);
    const auto role = roles_ ? roles_->find(name) : std::nullopt;
    if (role) {
      sources.push_back({"", 0, role});
    } else if (info_.find(name) && (!slot || *slot < info_.fields.size())) {
      sources.push_back({name, 0});
    } else if (slot) {
      sources.push_back(output(*slot));
    } else {
      throw RecipeError(
          {{place, path + ".inputs",
            "no layer and no field of the batch is called '" + name + "'" + suggestion(name, graph_->names())}});
    }
  }
  return sources;
}

LayerInputs Model::examples(const std::vector<Source>& sources, const Graph& graph) const {
  const ShapeMode shapes;
  LayerInputs inputs;
  for (const Source& source : sources) {
    if (!source.field.empty()) {
      const FieldInfo& field = *info_.find(source.field);
      inputs.examples.push_back(at::empty(example_sizes(field), field.dtype));
      inputs.num_classes.push_back(field.num_classes);
      inputs.names.push_back(source.field);
      continue;
    }
    inputs.num_classes.emplace_back();
    inputs.names.emplace_back();
    if (source.role) {
      inputs.examples.push_back(roles_->example(*source.role));
      continue;
    }
    const size_t slot = outputs_[source.graph_output];
    for (const Graph::Node& node : graph.nodes()) {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] == slot) inputs.examples.push_back(at::empty(node.output_shapes[i], node.output_dtypes[i]));
      }
    }
  }
  return inputs;
}

at::Tensor Model::example_output() const { return examples({Source{}}, *graph_).examples[0]; }

Tensors Model::forward(const Batch& batch) {
  Tensors outputs = forward_for_losses(batch);
  for (at::Tensor& output : outputs) output = widened(output, autocast_dtype_);
  return outputs;
}

Tensors Model::forward_for_losses(const Batch& batch) {
  Tensors inputs;
  for (const std::string& name : graph_->input_names()) inputs.push_back(batch.at(name));
  const Autocast autocast(autocast_dtype_, device_);
  Tensors outputs = plan_.run(inputs);
  const bool may_stay = autocast_dtype_ == at::kBFloat16 && device_ == at::kCPU;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!may_stay || !is_read_as_bfloat16_[i]) outputs[i] = widened(outputs[i], autocast_dtype_);
  }
  return outputs;
}

LossValue Model::loss(const Batch& batch, const Tensors& outputs, LossUse use) const {
  LossValue value;
  for (const WeightedLoss& part : losses_) {
    const Tensors inputs = gather(part.sources, batch, outputs);
    const bool is_narrow = part.facts.takes_bfloat16 && inputs[0].scalar_type() == at::kBFloat16;
    const Autocast autocast(is_narrow ? autocast_dtype_ : std::nullopt, device_);
    const at::Tensor own = part.loss.forward(inputs);
    const at::Tensor weighted = part.weight == 1 ? own : own * part.weight;
    LossValue::Part one{own.detach(), part.facts.sums, std::nullopt};
    if (part.counts(use)) {
      one.counted = value.counted.size();
      value.counted.push_back(weighted);
      if (use == LossUse::kEvaluation)
        value.targets.push_back(part.facts.counted->count(inputs[part.facts.counted->input]));
    } else {
      at::Tensor& sum = part.facts.sums ? value.sums : value.means;
      sum = sum.defined() ? sum + weighted : weighted;
    }
    if (losses_.size() > 1) value.parts.push_back(std::move(one));
  }
  return value;
}

std::vector<std::optional<size_t>> Model::counting_places(LossUse use) const {
  std::vector<std::optional<size_t>> places;
  size_t count = 0;
  for (const WeightedLoss& loss : losses_) places.push_back(loss.counts(use) ? std::optional(count++) : std::nullopt);
  return places;
}

size_t Model::num_counting_losses() const {
  return static_cast<size_t>(std::count_if(losses_.begin(), losses_.end(),
                                           [](const WeightedLoss& loss) { return loss.counts(LossUse::kStep); }));
}

TargetCounts Model::count_targets(const Batch& batch) const {
  TargetCounts counts;
  for (const WeightedLoss& loss : losses_) {
    if (!loss.counts(LossUse::kStep)) continue;
    const std::string& field = loss.sources[loss.facts.counted->input].field;
    const auto count = loss.facts.counted->count(batch.at(field)).item<double>();
    as_component(loss.name, {}, [&] {
      TORCH_CHECK(count > 0, "no target of the batch counts: '", field, "' is ", loss.facts.counted->ignore_index,
                  " (ignore_index) everywhere; were its texts cut off before what is to be predicted?");
    });
    counts.push_back(count);
  }
  return counts;
}

at::Tensor LossValue::total(double of_means, double of_sums, const TargetCounts& of_counted) const {
  const auto times = [](const at::Tensor& loss, double factor) {
    return loss.defined() && factor != 1 ? loss * factor : loss;
  };
  at::Tensor all = times(means, of_means);
  const auto add = [&all](const at::Tensor& other) {
    if (other.defined()) all = all.defined() ? all + other : other;
  };
  add(times(sums, of_sums));
  for (size_t i = 0; i < counted.size(); ++i) add(times(counted[i], of_counted.empty() ? 1 : of_counted[i]));
  return all;
}

at::Tensor number_of(const at::Tensor& loss, double factor) {
  const at::Tensor number = loss.detach().reshape({}).to(at::kDouble);
  return factor == 1 ? number : number * factor;
}

at::Tensor LossValue::value(double of_means, const TargetCounts& of_counted) const {
  LossValue numbers;
  if (means.defined()) numbers.means = number_of(means, of_means);
  if (sums.defined()) numbers.sums = number_of(sums);
  for (size_t i = 0; i < counted.size(); ++i) {
    numbers.counted.push_back(number_of(counted[i], of_counted.empty() ? 1 : of_counted[i]));
  }
  return numbers.total();
}

at::Tensor LossValue::part_values(double of_means, const TargetCounts& of_counted) const {
  Tensors numbers;
  for (const Part& part : parts) {
    numbers.push_back(number_of(part.loss, part.is_sum ? 1 : part.counted ? of_counted.at(*part.counted) : of_means));
  }
  return at::stack(numbers);
}

void Model::train(bool on) {
  const bool drops = std::none_of(losses_.begin(), losses_.end(), [](const WeightedLoss& part) {
    return dynamic_cast<const WithoutDropout*>(part.loss.state.get()) != nullptr;
  });
  graph_->train(on && drops);
  if (on && !drops) {
    for (const auto& module : graph_->modules()) {
      if (module->named_buffers(/*recurse=*/false).contains("running_mean")) module->train();
    }
  }
  for (const WeightedLoss& part : losses_) {
    if (part.loss.state) part.loss.state->train(on);
  }
}

void Model::to(at::Device device) {
  device_ = device.type();
  graph_->to(device);
  if (roles_) roles_->to(device);
  for (const WeightedLoss& part : losses_) {
    if (part.loss.state) part.loss.state->to(device);
  }
}

}  // namespace trainrun
