#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/components/transforms/scaling.h"
#include "registry/graph/graph.h"
#include "registry/graph/passes.h"
#include "registry/tensors/component_error.h"
#include "registry/tensors/named_tensors.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

class ModelAdapters;
class ModelRoles;

/// A loss times `factor`, as a float64 scalar without a way back to the parameters.
at::Tensor number_of(const at::Tensor& loss, double factor = 1);

/// The share of each loss that counts targets (Model::count_targets) that a batch has in a step, or how many there are.
using TargetCounts = std::vector<double>;

/// What losses are computed for: a step, of which a loss may be the mean of its batches' means as PyTorch's loops make it
/// (`mean_over: batch`), or data that are evaluated, whose loss is that of one batch.
enum class LossUse { kStep, kEvaluation };

/// The loss of one batch. What is minimized is `means` + `sums` + all `counted`; of a batch cut into pieces it is the
/// mean of the pieces' `means`, by their samples, the sum of their `sums`, and of each of `counted` the mean by targets.
struct LossValue {
  at::Tensor means;                 // of the losses that average over samples: a scalar; undefined where there are none
  at::Tensor sums;                  // of those with `reduction: sum`
  std::vector<at::Tensor> counted;  // each of those that average over the targets which count
  Tensors targets;                  // in an evaluation: how many these are, for each of `counted`

  struct Part {
    at::Tensor loss;
    bool is_sum = false;            // of a loss with `reduction: sum`
    std::optional<size_t> counted;  // of that one of `counted`
  };
  std::vector<Part> parts;  // each loss by itself, not weighted, where the recipe has several

  /// means * of_means + sums * of_sums + each of `counted` times its own factor (none given: 1): a scalar.
  at::Tensor total(double of_means = 1, double of_sums = 1, const TargetCounts& of_counted = {}) const;
  /// The same as a float64 scalar beside the graph of gradients, of `sums` as they are.
  at::Tensor value(double of_means = 1, const TargetCounts& of_counted = {}) const;
  /// [parts]: each of `parts` likewise.
  at::Tensor part_values(double of_means, const TargetCounts& of_counted) const;
};

/// The layers, the losses and what each reads, wired to the fields of a batch.
class Model {
 public:
  /// Where a loss or a metric finds an input: a field of the batch, an output of the graph, or of a frozen model.
  struct Source {
    std::string field;  // "" for an output of the graph
    size_t graph_output = 0;
    std::optional<size_t> role = std::nullopt;  // the output of this one of the recipe's `models`
  };

  /// Builds for batches of `info`, with real weights from the default random generator, or within the ShapeMode
  /// without. Metrics read batches of `evaluated`, where its fields differ. Throws RecipeError where layers, loss or
  /// metrics do not fit.
  Model(const Recipe& recipe, const DatasetInfo& info, const DatasetInfo& evaluated = {});

  /// The graph's outputs: what loss and metrics read, and the last layer's first output.
  Tensors forward(const Batch& batch);
  /// The same for a step's losses alone: under autocast, outputs may be of bfloat16 that only losses read which take it.
  Tensors forward_for_losses(const Batch& batch);
  /// Of the batch whose outputs are given.
  LossValue loss(const Batch& batch, const Tensors& outputs, LossUse use = LossUse::kStep) const;
  /// For each loss: its place among those that are means over targets, and not over samples.
  std::vector<std::optional<size_t>> counting_places(LossUse use) const;
  /// How many of these there are in a step.
  size_t num_counting_losses() const;
  /// How many targets of a step's batch count, for each of these. Throws ComponentError where none does: its mean would
  /// be of nothing. Waits for a GPU.
  TargetCounts count_targets(const Batch& batch) const;
  /// The recipe's metrics for what this model gives. Throws RecipeError where one does not fit.
  std::vector<std::unique_ptr<Metric>> build_metrics(const Recipe& recipe) const;
  /// What loss `i` of the recipe reads: its output, then its target, …; undefined where a frozen model gives it.
  Tensors loss_inputs(size_t i, const Batch& batch, const Tensors& outputs) const;
  /// The field of the batch that loss `i` compares its output with; "": that is none.
  std::string loss_target(size_t i) const;
  /// What the losses keep, of those that keep something.
  std::vector<std::shared_ptr<torch::nn::Module>> loss_states() const;
  /// The graph's slots that loss `i` of the recipe reads, besides fields of the batch.
  std::vector<size_t> loss_slots(size_t i) const;
  /// Has metrics that compare with a field of `scalings` read its numbers, and the outputs for them, in its own units
  /// from now on: errors in dollars, where the job learns deviations from a mean.
  void set_units(std::map<std::string, Scaling> scalings) { scalings_ = std::move(scalings); }
  /// What metric `i` of the recipe reads.
  Tensors metric_inputs(size_t i, const Batch& batch, const Tensors& outputs) const;

  /// How the layers are run: with the recipe's fusions, and what was put around them since.
  const Plan& plan() const { return plan_; }
  /// Has `brackets` around layers from now on. Throws Error where one names no layer.
  void set_brackets(std::vector<Bracket> brackets);
  /// Has what `measure` makes of each step run in its place from now on; null: the step itself.
  void set_measure(std::function<std::shared_ptr<const Operation>(const PlanStep&)> measure);

  /// The recipe's adapters; null if it has none.
  ModelAdapters* adapters() { return adapters_.get(); }
  const ModelAdapters* adapters() const { return adapters_.get(); }

  /// The recipe's `models`; null if it has none.
  ModelRoles* roles() const { return roles_.get(); }
  /// A tensor like the last layer's first output.
  at::Tensor example_output() const;

  Graph& graph() { return *graph_; }
  const Graph& graph() const { return *graph_; }
  /// Parameters and buffers by their PyTorch names, in the order in which layers are built. That is PyTorch's but for
  /// some models of Hugging Face's (Llama's norms stand before what reads them): match Python's by name, not by place.
  NamedTensors state_dict() const;
  /// The same without the recipe's adapters, whose layers' weights alone then compute what they compute with them.
  NamedTensors merged_state_dict() const;
  /// The parameters alone.
  NamedTensors parameters() const;
  /// Those among `named`, which are the parameters or a rank's pieces of them, that `model.freeze` names until its
  /// epoch has come; none if that never comes, since they then ask for no gradient at all.
  Tensors frozen_for_now(const Recipe& recipe, const NamedTensors& named) const;
  /// What layers keep besides: running means, counts.
  Tensors buffers() const;
  int64_t num_parameters() const;
  /// How many times the optimizer's learning rate parameters learn at, by name; others: once. Those of the layers, times
  /// what `optimizer.layer_decay` says.
  std::map<std::string, double> lr_scales(const Recipe& recipe) const;
  void train(bool on = true);
  /// Moves all that is computed with to `device`; batches must be there, too. Tensors stay the objects they are.
  void to(at::Device device);

  /// Copies `tensors` into the state dict. Throws Error that lists what is missing, unexpected, or of another shape.
  /// Not `strict`: what is missing or of another shape stays as it is, unexpected tensors are skipped; all of them
  /// are returned, one line each, or nothing. `lacks_adapters`: what is the adapters' is not missed.
  std::vector<std::string> load_state_dict(const NamedTensors& tensors, const std::string& origin, bool strict = true,
                                           bool lacks_adapters = false);

 private:
  std::vector<Source> find_sources(const Names& names, const Place& place, const std::string& path);
  LayerInputs examples(const std::vector<Source>& sources, const Graph& graph) const;
  Tensors gather(const std::vector<Source>& sources, const Batch& batch, const Tensors& outputs) const;
  void freeze(const Recipe& recipe);
  /// The layers that `model.checkpoint_activations` names. Throws RecipeError where a pattern matches none.
  std::vector<std::string> recomputed_layers(const Recipe& recipe) const;
  void build_losses(const Recipe& recipe);
  void note_bfloat16_readers();
  void check_metrics(const Recipe& recipe) const;
  /// What the data call the labels that a metric's target holds for each sample, where such names can be figures'.
  std::vector<std::string> label_names(const Recipe& recipe, const std::vector<Source>& sources) const;

  DatasetInfo info_;
  std::optional<at::ScalarType> autocast_dtype_;
  at::DeviceType device_ = at::kCPU;
  std::shared_ptr<Graph> graph_;
  std::shared_ptr<const Graph> evaluated_graph_;  // shapes alone, where evaluated batches have other sizes; else null
  std::shared_ptr<ModelAdapters> adapters_;
  std::shared_ptr<ModelRoles> roles_;
  PlanOptions plan_options_;
  Plan plan_;
  std::vector<size_t> outputs_;            // slots of the graph
  std::vector<bool> is_read_as_bfloat16_;  // of each: whether losses read it, and all of them take bfloat16
  struct WeightedLoss {
    double weight;
    LossFacts facts;
    Loss loss;
    std::vector<Source> sources;
    ComponentName name = {};
    bool counts(LossUse use) const { return facts.counted && (use == LossUse::kEvaluation || facts.counted->in_steps); }
  };
  std::vector<WeightedLoss> losses_;
  std::vector<std::vector<Source>> metric_sources_;
  std::map<std::string, Scaling> scalings_;  // of fields
};

/// The recipe's `models`: models that stand beside its own and are never trained, such as a teacher, or what the model
/// was before training. They do not know of each other, and no checkpoint holds them.
class ModelRoles {
 public:
  /// Builds them for batches of `info`; random numbers go on as if nothing had been drawn. Throws RecipeError where one
  /// does not fit, is called like something else, or has no weights that can be read again.
  ModelRoles(const Recipe& recipe, const DatasetInfo& info, const Model& owner);

  std::optional<size_t> find(const std::string& name) const;
  /// A tensor like the role's output.
  at::Tensor example(size_t role) const;
  /// The role's output for a batch, without a way back to its weights; reads these first where `load` has not.
  at::Tensor run(size_t role, const Batch& batch);

  /// Reads their weights; what was skipped is returned, a line each. Throws DataError, Error.
  std::vector<std::string> load();
  /// Follows the owner, which was moved there.
  void to(at::Device device);
  /// What their weights take, without those that they share with the owner.
  int64_t num_bytes() const;
  /// Those that have weights of their own.
  std::vector<const Model*> models() const;

 private:
  struct Role {
    std::string name;
    std::shared_ptr<const Recipe> recipe;  // of the role alone
    std::unique_ptr<Model> model;
    bool shares = false;                                    // the owner's weights, but for those that it trains
    std::vector<std::pair<at::Tensor, at::Tensor>> shared;  // a parameter, and the owner's whose values it has
  };
  void build(Role& role, const Recipe& recipe, const RoleSection& section, const DatasetInfo& info, const Model& owner);
  /// Has the shared parameters be the owner's, wherever these are.
  static void share(const Role& role);
  /// What the role does not share, each tensor once.
  static NamedTensors own_state(const Role& role);

  std::vector<Role> roles_;
  bool is_loaded_ = false;
};

/// Fields of the batches that a split gives, after its transforms; opens no data.
DatasetInfo training_info(const Recipe& recipe);
/// Of set number `set` of the evaluation data.
DatasetInfo evaluation_info(const Recipe& recipe, size_t set = 0);

/// The model in the shape mode: no memory, no data. Throws RecipeError where anything does not fit.
std::unique_ptr<Model> plan_model(const Recipe& recipe);

}  // namespace trainrun
