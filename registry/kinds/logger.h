#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/figures.h"
#include "registry/language/registry.h"

namespace trainrun {

/// What a logger needs to know about a run.
struct RunInfo {
  std::string name;
  std::string output_dir;
  int64_t total_steps = 0;  // optimizer steps of the whole job
  int64_t start_step = 0;   // > 0 if the run was resumed there
  int64_t num_epochs = 0;   // 0 if max_steps decides the length
  int64_t num_parameters = 0;
  int64_t train_samples = 0;
  std::optional<int64_t> eval_samples;
  int64_t effective_batch_size = 0;
  std::string device;  // "cpu"
  /// The content of recipe.yaml: the resolved recipe, as YAML, in which possible secrets are still `${env:…}`.
  std::string recipe;
  /// Whether the evaluation after `start_step` is made again, even if it was logged before the run was stopped.
  bool evaluation_due = false;
};

/// The figures of the newest finished optimizer step. A logger that writes all figures uses `figures()`, which includes
/// figures that are added later.
struct StepRecord {
  int64_t step = 0;     // finished optimizer steps
  int64_t epoch = 0;    // counts from 0
  double seconds = 0;   // of training, including that before the run was resumed
  double loss = 0;      // mean over the step's samples
  double loss_avg = 0;  // mean over the steps since the last record
  double lr = 0;        // of the first group that is not frozen
  double samples_per_second = 0;
  std::vector<double> group_lrs;     // of every parameter group, if there are several
  std::optional<double> grad_norm;   // before clipping; only if clipping is on
  std::optional<double> loss_scale;  // only if the loss is scaled
  int64_t skipped_steps = 0;         // so far, because gradients overflowed
  Figures losses;                    // {"train/loss/digit", 0.3}: each loss, if there are several
  Figures of_callbacks;              // {"train/grad_norm/all", 0.4}

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
  std::string reason;  // "" if the job is done; otherwise "SIGTERM", "error: …"
  Figures metrics;     // of the last evaluation
};

/// Watches a run on rank 0, and cannot change it, stop it, or slow it down: each logger is called on a thread of its
/// own, in the order in which things happen. If a logger throws, a message names it, it is left out from then on, and
/// the job goes on. At the end of the run its waiting calls are still made, for a few seconds at most.
class Logger {
 public:
  virtual ~Logger() = default;
  /// Whether it is called on the training thread, which then waits for it. For loggers whose output must agree with the
  /// checkpoints, or with the terminal, at any time; they must be quick.
  virtual bool is_told_at_once() const { return false; }
  virtual void on_start(const RunInfo&) {}
  /// The newest optimizer step, for progress bars. Steps are left out if they come faster than the logger handles them.
  virtual void on_progress(int64_t step, double loss) { static_cast<void>(step), static_cast<void>(loss); }
  /// Called every `logging.every_steps` steps.
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
