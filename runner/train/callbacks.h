#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/components/callbacks/sample_losses.h"
#include "registry/components/callbacks/text_samples.h"
#include "registry/kinds/callback.h"
#include "registry/tensors/component_error.h"
#include "runner/distributed/parallel_model.h"
#include "runner/model/model.h"
#include "runner/recipe/recipe.h"
#include "runner/train/kept_weights.h"

namespace trainrun {

/// What callbacks have only while a job trains.
struct TrainingAccess {
  std::function<int64_t()> total_steps;
  std::function<void()> estimate_batch_norms;
};

/// What callbacks see of a model that is trained, or evaluated.
class ModelRun : public Run {
 public:
  /// All outlive this.
  ModelRun(const Model& model, const ParallelModel& parallel, Communicator& ranks, const Recipe& recipe,
           const int64_t& step, TrainingAccess training = {})
      : model_(model),
        parallel_(parallel),
        ranks_(ranks),
        recipe_(recipe),
        step_(step),
        training_(std::move(training)) {}

  int64_t step() const override { return step_; }
  int64_t total_steps() const override { return training_.total_steps ? training_.total_steps() : step_; }
  uint64_t seed() const override { return static_cast<uint64_t>(recipe_.seed); }
  NamedTensors parameters() const override;
  bool has_pieces() const override { return parallel_.is_sharded(); }
  NamedTensors buffers() const override;
  Communicator& ranks() const override { return ranks_; }
  void estimate_batch_norms() override;

 private:
  const Model& model_;
  const ParallelModel& parallel_;
  Communicator& ranks_;
  const Recipe& recipe_;
  const int64_t& step_;
  TrainingAccess training_;
};

/// Those of a recipe, called in its order, after the runner's own.
class Callbacks {
 public:
  Callbacks(const Recipe& recipe, std::unique_ptr<Run> run);

  /// One of the runner's own, which has its state elsewhere.
  void add_own(ComponentName name, std::unique_ptr<Callback> callback);

  /// Those that have the model write texts get them from `source`. Throws ComponentError where it has none for them.
  void use(std::unique_ptr<TextSource> source);

  /// Those that keep the losses of single samples get the book of the run, which is made where one of them wants it.
  /// Throws ComponentError where there is none for it.
  void use(const std::function<SampleLossBook&()>& book);

  void before_forward(Batch& batch);
  void before_update(bool is_logged);
  bool read_gradients(bool is_logged) const;
  void after_step(const StepResult& result);
  void add_figures(Figures& figures);
  /// Whether any of them changed what evaluations use.
  bool after_training();
  /// All verdicts in one: `stop` of the first that says so. Keeps the weights where one of them asks for that.
  Verdict after_evaluation(const Figures& figures);
  /// Whether `restore_kept` would change the weights.
  bool restores_kept() const;
  /// At the end of a run: goes back to the weights that were kept, if a callback restores them. False: nothing changes.
  bool restore_kept();
  /// What a checkpoint keeps of them: of this rank; after the callbacks' own.
  Snapshot save_kept() const { return kept_.save(); }
  void load_kept(const Snapshot& snapshot);
  /// The scopes of all, in order.
  std::vector<std::unique_ptr<Scope>> around_evaluation();
  /// State of the recipe's callback `i`: of this rank.
  Snapshot save(size_t i);
  void load(size_t i, const Snapshot& snapshot);

 private:
  struct Item {
    ComponentName name;
    std::unique_ptr<Callback> callback;
  };
  template <class Body>
  void for_each(const Body& body);
  KeptWeights::Callbacks all_of_recipe() const;

  std::unique_ptr<Run> run_;
  std::unique_ptr<TextSource> texts_;
  std::vector<Item> own_;
  std::vector<Item> items_;  // as the recipe has them
  KeptWeights kept_;
};

/// The name of the recipe's callback `i` among the parts of a checkpoint: "callbacks[0]".
std::string callback_part(size_t i);

/// What callbacks do to an evaluation, while one lives.
class EvaluationScope {
 public:
  explicit EvaluationScope(Callbacks& callbacks) : callbacks_(callbacks) { enter(); }
  ~EvaluationScope() { leave(); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

  /// Puts everything back for a while, as a checkpoint in its midst needs it.
  void leave();
  void enter() { scopes_ = callbacks_.around_evaluation(); }
  /// Whether any callback has something to change.
  bool changes() const { return !scopes_.empty(); }
  /// What losses and metrics read of `batch`: each predictor asks the one before it, the first one the model.
  Tensors predict(const Batch& batch, const Predictor::Forward& forward) const;

 private:
  Callbacks& callbacks_;
  std::vector<std::unique_ptr<Scope>> scopes_;
};

}  // namespace trainrun
