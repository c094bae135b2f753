#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/figures.h"
#include "registry/registry.h"

namespace trainrun {

/// What a run is, as far as those who watch it need to know.
struct RunInfo {
  std::string name;
  std::string output_dir;
  int64_t total_steps = 0;  // optimizer steps of the whole job
  int64_t start_step = 0;   // > 0: resumed there
  int64_t num_epochs = 0;   // 0 where max_steps rules
  int64_t num_parameters = 0;
  int64_t train_samples = 0;
  std::optional<int64_t> eval_samples;
  int64_t effective_batch_size = 0;
  std::string device;  // "cpu"
  /// What recipe.yaml holds: the recipe, resolved, but for what may be a secret, which is still `${env:…}`. YAML.
  std::string recipe;
  /// The evaluation after `start_step` comes again, whether or not it was told before the run was stopped.
  bool evaluation_due = false;
};

/// Finished optimizer steps, the newest of them in figures. Who writes all of them takes `figures()`, which a new figure
/// joins by itself.
struct StepRecord {
  int64_t step = 0;     // finished optimizer steps
  int64_t epoch = 0;    // counts from 0
  double seconds = 0;   // since the run's start, training of earlier starts counted
  double loss = 0;      // mean over the step's samples
  double loss_avg = 0;  // mean over the steps since the last record
  double lr = 0;        // of the first group that is not frozen
  double samples_per_second = 0;
  std::vector<double> group_lrs;     // of every parameter group, where there are several
  std::optional<double> grad_norm;   // before clipping; where clipping is on
  std::optional<double> loss_scale;  // where the loss is scaled
  int64_t skipped_steps = 0;         // so far, for gradients that overflowed
  Figures losses;                    // {"train/loss/digit", 0.3}: each loss, where there are several

  /// Every figure: {"train/loss", 0.4}, {"train/lr", 2e-4}, {"train/lr/0", 2e-4}, …
  Figures figures() const;
};

struct EvaluationRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  double seconds = 0;
  Figures metrics;  // {"eval/loss", 0.05}, {"eval/accuracy", 0.98}
};

struct CheckpointRecord {
  int64_t step = 0;
  std::string path;
};

struct EndRecord {
  int64_t step = 0;
  double seconds = 0;
  std::string reason;  // "" where the job is done; "SIGTERM", "error: …" otherwise
  Figures metrics;     // the last evaluation
};

/// Watches a run on rank 0 and cannot change it, nor stop it, nor slow it down: each is told by a thread of its own, in
/// the order in which things happen. One that throws is named and left out from then on, and the job goes on. At the end
/// of the run what still waits for it is told, for some seconds at most.
class Logger {
 public:
  virtual ~Logger() = default;
  /// Whether it is told on the training thread, which then waits for it: for what has to agree with the checkpoints at
  /// any instant, or with the terminal. It must be quick.
  virtual bool is_told_at_once() const { return false; }
  virtual void on_start(const RunInfo&) {}
  /// The newest optimizer step; not every one where they come faster than the logger takes them. For progress bars.
  virtual void on_progress(int64_t step, double loss) { static_cast<void>(step), static_cast<void>(loss); }
  /// Every `logging.every_steps` steps.
  virtual void on_step(const StepRecord&) {}
  virtual void on_evaluation(const EvaluationRecord&) {}
  virtual void on_checkpoint(const CheckpointRecord&) {}
  virtual void on_end(const EndRecord&) {}
};

struct LoggerInputs {
  std::string output_dir;
  bool quiet = false;
  bool interactive = false;  // a person watches standard error on a terminal
};

struct LoggerKind {
  static constexpr const char* kName = "logger";
  using Inputs = LoggerInputs;
  using Product = std::unique_ptr<Logger>;
  using Common = NoCommon;
};
using LoggerRegistry = Registry<LoggerKind>;
const LoggerRegistry& registry_of(const Catalog& catalog, LoggerKind);

}  // namespace trainrun
