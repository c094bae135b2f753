#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
};

/// Finished optimizer steps, the newest of them in figures.
struct StepRecord {
  int64_t step = 0;     // finished optimizer steps
  int64_t epoch = 0;    // counts from 0
  double seconds = 0;   // since the run's start, training of earlier starts counted
  double loss = 0;      // mean over the step's samples
  double loss_avg = 0;  // mean over the steps since the last record
  double lr = 0;        // of the first group that is not frozen
  double samples_per_second = 0;
  std::optional<double> grad_norm;                     // before clipping; where clipping is on
  std::optional<double> loss_scale;                    // where the loss is scaled
  int64_t skipped_steps = 0;                           // so far, for gradients that overflowed
  std::vector<std::pair<std::string, double>> losses;  // {"train/loss/digit", 0.3}: each loss, where there are several
};

struct EvaluationRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  double seconds = 0;
  std::vector<std::pair<std::string, double>> metrics;  // {"eval/loss", 0.05}, {"eval/accuracy", 0.98}
};

struct CheckpointRecord {
  int64_t step = 0;
  std::string path;
};

struct EndRecord {
  int64_t step = 0;
  double seconds = 0;
  std::string reason;                                   // "" where the job is done; "SIGTERM", "error: …" otherwise
  std::vector<std::pair<std::string, double>> metrics;  // the last evaluation
};

/// Watches a run and cannot change it. Runs on rank 0 only. An exception from it ends the job.
class Logger {
 public:
  virtual ~Logger() = default;
  virtual void on_start(const RunInfo&) {}
  /// Every optimizer step; cheap: for progress bars.
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
