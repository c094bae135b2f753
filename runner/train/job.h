#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/data/data.h"
#include "runner/data/data_loader.h"
#include "runner/distributed/parallel_model.h"
#include "runner/distributed/process_group.h"
#include "runner/model/model.h"
#include "runner/model/precision.h"
#include "runner/model/recipe_loader.h"
#include "runner/observers/observers.h"
#include "runner/run/checkpoint_store.h"
#include "runner/run/run_folder.h"

namespace trainrun {

/// Where training stands: what a checkpoint must put back besides weights, optimizer, scheduler and random numbers.
struct Progress {
  int64_t step = 0;                                     // finished optimizer steps
  int64_t epoch = 0;                                    // the epoch we are in, from 0
  int64_t batch = 0;                                    // the next batch of that epoch
  double seconds = 0;                                   // of training so far, over all starts
  double loss_sum = 0;                                  // since the last line of the log
  int64_t loss_count = 0;                               // steps in that sum
  std::optional<double> best;                           // of the monitored metric
  int64_t skipped_steps = 0;                            // of `step`: those whose gradients overflowed in float16
  std::vector<std::pair<std::string, double>> metrics;  // the last evaluation
  bool evaluation_due = false;                          // of `step`: what is saved has not been evaluated yet
};

/// Throws RecipeError where an optimizer cannot work on pieces of parameters.
void require_elementwise(const Component<OptimizerKind>& chosen, const Optimizer& optimizer);

/// Everything a recipe names, built in order, each part from the ones before; plain members, owned here.
class Job {
 public:
  struct Options {
    bool quiet = false;
    bool verbose = false;
    std::optional<Rendezvous> rendezvous = std::nullopt;  // with the other processes of the job
    bool dry_run = false;  // this rank alone, as if the others were there; no folder, log, checkpoints or observers
  };

  /// Opens the data, builds the model, takes the run's folder and, where the folder holds an unfinished run of this
  /// recipe, its newest checkpoint. Throws RecipeError, DataError, CheckpointError, Error.
  Job(const LoadedRecipe& loaded, const Options& options);

  /// Optimizer steps of one epoch, and of the whole job.
  int64_t steps_per_epoch() const;
  int64_t total_steps() const;
  /// Rates for the next step.
  void set_rates();
  /// Whether this process is the one that writes and speaks: rank 0.
  bool is_main() const { return !group || group->is_main(); }
  int64_t world_size() const { return group ? group->world_size() : 1; }
  /// Writes a checkpoint of the current state; called by all ranks.
  void save(const std::string& name, bool best);
  /// Has the checkpoint of the current step, which is there, say what its evaluation found; called by all ranks.
  void amend(const std::string& name, bool best);
  /// Where the generators of random numbers stand, to go back to.
  Tensors random_states() const;
  void set_random_states(const Tensors& states) const;
  /// The other ranks, where each has only pieces of the gradients; null otherwise.
  Communicator* shards() const { return parallel && parallel->is_sharded() ? group.get() : nullptr; }

  const Recipe& recipe;
  at::Device device = at::kCPU;         // where to compute
  std::unique_ptr<ProcessGroup> group;  // null: this process alone
  std::unique_ptr<RunFolder> folder;    // of the main process
  std::unique_ptr<Dataset> train_data;
  std::unique_ptr<Dataset> eval_data;  // null: none
  std::unique_ptr<DataTransforms> transforms;
  std::unique_ptr<DataLoader> train_loader;
  std::unique_ptr<DataLoader> eval_loader;
  std::unique_ptr<Model> model;
  std::vector<std::unique_ptr<Metric>> metrics;
  std::unique_ptr<ParallelModel> parallel;  // null: one process
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Scheduler> scheduler;     // null: constant rates
  std::unique_ptr<GradScaler> grad_scaler;  // null: the loss is not scaled
  std::unique_ptr<CheckpointStore> checkpoints;
  std::unique_ptr<Observers> observers;
  Tensors parameters;               // those that want a gradient; this rank's pieces where it is sharded
  std::optional<double> grad_norm;  // of the last step, before clipping; where clipping is on
  std::vector<double> loss_parts;   // of the last step: each loss, not weighted; where the recipe has several
  Progress progress;
  /// What times are taken from; a test may set another.
  std::function<std::chrono::steady_clock::time_point()> clock = std::chrono::steady_clock::now;

 private:
  void connect(const LoadedRecipe& loaded, const Options& options);
  void build_data();
  void build_model();
  void build_parallel();
  void build_optimizer();
  void open_folder(const LoadedRecipe& loaded);
  void build_observers(const Options& options);
  void resume();
  std::string write(const std::string& name, const CheckpointContent& content, bool best);
  /// Throws CheckpointError naming `from`, DataError where the data is not what it was.
  void restore(const std::string& from);
  void restore_progress(const nlohmann::json& state);
  void restore_random(const nlohmann::json& random);
  void check_data(const nlohmann::json& state);
  void check_what_is_left(const std::string& from) const;
  /// Of the data sets, as data_fingerprint.h has it; read once.
  const nlohmann::json& data_fingerprint();
  void restore_optimizer(const NamedTensors& saved);
  std::optional<std::string> checkpoint_to_resume();
  /// What a checkpoint keeps besides tensors; called by all ranks.
  nlohmann::json state();
  /// Where random numbers are drawn while training.
  std::vector<at::Device> random_sources() const;

  bool quiet_ = false;
  bool verbose_ = false;
  std::optional<nlohmann::json> data_fingerprint_;
  std::vector<std::string> passed_over_;  // of model.weights, until there is a log
};

/// Counted over the whole job, from where it stands; null: constant rates.
std::unique_ptr<Scheduler> build_scheduler(const Job& job);

}  // namespace trainrun
