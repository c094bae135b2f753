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
#include "runner/loggers/loggers.h"
#include "runner/model/model.h"
#include "runner/model/parameter_watch.h"
#include "runner/model/precision.h"
#include "runner/model/recipe_loader.h"
#include "runner/run/checkpoint_writer.h"
#include "runner/run/run_folder.h"
#include "runner/train/callbacks.h"
#include "runner/train/progress.h"
#include "runner/train/sample_losses.h"
#include "runner/train/stateful.h"
#include "runner/train/step_account.h"
#include "runner/train/step_outcome.h"

namespace trainrun {

struct StepDivision;

class Control;

/// What of the recipe was changed while the run went on.
struct ChangedSettings {
  std::optional<int64_t> log_every;
  std::optional<EveryOrTime> checkpoint_every;
  std::optional<Every> evaluation_every;
};

/// Throws RecipeError where an optimizer cannot work on pieces of parameters.
void require_elementwise(const Component<OptimizerKind>& chosen, const Optimizer& optimizer);

/// One set of evaluation data.
struct EvalSplit {
  std::unique_ptr<Dataset> data;
  std::unique_ptr<DataLoader> loader;
};

/// Everything a recipe names, built in order, each part from the ones before; plain members, owned here.
class Job {
 public:
  struct Options {
    bool quiet = false;
    bool verbose = false;
    std::optional<Rendezvous> rendezvous = std::nullopt;  // with the other processes of the job
    std::optional<at::Device> device = std::nullopt;      // to compute on, whatever the recipe says: for tests
    bool dry_run = false;  // this rank alone, as if the others were there; no folder, log, checkpoints or loggers
  };

  /// Opens the data, builds the model, takes the run's folder and, where the folder holds an unfinished run of this
  /// recipe, its newest checkpoint. Throws RecipeError, DataError, CheckpointError, Error.
  Job(const LoadedRecipe& loaded, const Options& options);

  /// Optimizer steps of one epoch, and of the whole job.
  int64_t steps_per_epoch() const;
  int64_t total_steps() const;
  /// When checkpoints and evaluations are due, as the recipe or a change has it.
  const EveryOrTime& checkpoint_every() const {
    return changed.checkpoint_every ? *changed.checkpoint_every : recipe.checkpoint.every;
  }
  const Every& evaluation_every() const {
    return changed.evaluation_every ? *changed.evaluation_every : recipe.evaluation.every;
  }
  /// Whether the log gets a line after this step; it gets one, too, where the time or the tokens are up.
  bool is_line_due(int64_t step) const;
  /// Whether a logger wants histograms of this step's gradients, and this process has them.
  bool counts_gradients(int64_t step) const;
  /// Rates for the next step.
  void set_rates();
  /// The finished steps, or epochs, that the recipe's scheduler counts.
  int64_t scheduler_time() const;
  /// Whether this process is the one that writes and speaks: rank 0.
  bool is_main() const { return group->is_main(); }
  int64_t world_size() const { return group->world_size(); }
  /// Everything that a checkpoint keeps, by part; on rank 0. Called by all ranks. With copies of its own it may be
  /// written while training goes on.
  enum class Copies { kShared, kOwn };
  Snapshots capture(Copies copies);
  /// Called as training begins.
  void begin_saving() { saved_at_ = clock(); }
  /// Writes a checkpoint of the current state, or, with checkpoint.background, copies the state and begins to write it,
  /// unless saves come faster than that (is_worth_own); called by all ranks. Loggers are told of a checkpoint when it is
  /// on the disk.
  void save(const std::string& name, bool best);
  /// Has the checkpoint of the current step, which was saved, say what its evaluation found; called by all ranks.
  void amend(const std::string& name, bool best);
  /// Tells the loggers of what was written meanwhile; throws what went wrong there.
  void heed_writer();
  /// Waits until everything that was saved is on the disk; called by all ranks.
  void finish_saving();
  /// Goes on from the checkpoint `from`. Throws CheckpointError naming it, DataError where the data are not what they
  /// were.
  void restore(const std::string& from);
  /// Throws DataError where the data are not those that a checkpoint's state speaks of.
  void check_data(const nlohmann::json& state);
  /// Where the generators of random numbers stand, to go back to.
  Tensors random_states() const;
  void set_random_states(const Tensors& states) const;
  /// The other ranks, where each has only pieces of the gradients; null otherwise.
  Communicator* shards() const { return parallel->is_sharded() ? group.get() : nullptr; }

  const Recipe& recipe;
  at::Device device = at::kCPU;  // where to compute
  std::unique_ptr<ProcessGroup> group = std::make_unique<ProcessGroup>();
  std::unique_ptr<RunFolder> folder;  // of the main process
  nlohmann::json kept_tokenizers;     // in it
  std::unique_ptr<Dataset> train_data;
  std::vector<EvalSplit> eval_splits;  // as recipe.dataset.eval has them; empty: none
  std::unique_ptr<DataTransforms> transforms;
  std::unique_ptr<DataLoader> train_loader;
  std::unique_ptr<Model> model;
  std::vector<std::unique_ptr<Metric>> metrics;
  std::unique_ptr<ParallelModel> parallel;
  std::unique_ptr<ParameterWatch> watch;  // over forward passes of one rank among several; null: this process is alone
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Scheduler> scheduler;           // null: constant rates
  std::unique_ptr<GradScaler> grad_scaler;        // null: the loss is not scaled
  std::unique_ptr<CheckpointWriter> checkpoints;  // of the main process
  std::unique_ptr<Loggers> loggers;
  Control* control = nullptr;     // the run's socket, one of the loggers; null: not rank 0, or there is none
  std::vector<GroupRates> rates;  // of the optimizer's groups, for the next step
  Tensors parameters;             // those that want a gradient; this rank's pieces where it is sharded
  Tensors frozen;                 // of those, until epoch model.unfreeze_at_epoch
  bool continues = false;         // the folder holds this run, unfinished
  Progress progress;
  ChangedSettings changed;
  std::vector<RunChange> later_changes;              // of before the resume, which come again
  std::vector<Histogram> gradient_histograms;        // of the step being made, where a logger wants them
  std::unique_ptr<StepAccount> account;              // what steps found
  std::unique_ptr<SampleLossAccount> sample_losses;  // null: no callback wants them
  std::unique_ptr<Callbacks> callbacks;
  /// What times are taken from; a test may set another.
  std::function<std::chrono::steady_clock::time_point()> clock = std::chrono::steady_clock::now;
  /// Set by who trains, where the recipe heeds the clock: says what is due by now.
  std::function<void(StepDecision&)> ask_clock;
  /// Set by who makes steps again, in a dry run: told of each step when it is done, before anything that is due after it.
  /// True: training ends here, and nothing is due.
  std::function<bool(const StepOutcome&)> leave_after;

 private:
  void connect(const LoadedRecipe& loaded, const Options& options);
  void build_data();
  void build_model();
  void build_parallel();
  void build_optimizer();
  void divide_step();
  void build_callbacks();
  void open_folder(const LoadedRecipe& loaded);
  void build_loggers(const Options& options);
  void open_control();
  void resume();
  /// Of a run that goes on: changes that were made after the checkpoint.
  void take_later_changes();
  /// Whether the folder was removed or renamed, even while something was written to it; then it is there again.
  bool restore_folder();
  void check_what_is_left(const std::string& from) const;
  std::optional<std::string> checkpoint_to_resume();

  std::shared_ptr<StepDivision> division_;  // of the optimizer's step; null: each rank makes the whole of it
  std::vector<Problem> missing_;            // LoadedRecipe::missing
  bool quiet_ = false;
  bool verbose_ = false;
  std::optional<int64_t> saving_step_;              // that was saved last; it may not be on the disk yet
  std::chrono::steady_clock::time_point saved_at_;  // when that save returned, or training began
  std::vector<std::unique_ptr<Stateful>> parts_;    // that a checkpoint keeps
  std::vector<std::string> passed_over_;            // of model.weights, until there is a log
};

/// Counted over the whole job, from where it stands; null: constant rates.
std::unique_ptr<Scheduler> build_scheduler(const Job& job);
/// The same if the job's rates were `base`.
std::unique_ptr<Scheduler> build_scheduler(const Job& job, std::vector<GroupRates> base);

}  // namespace trainrun
