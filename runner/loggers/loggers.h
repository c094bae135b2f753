#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/logger.h"
#include "runner/loggers/told_logger.h"

namespace trainrun {

/// Adds the loggers that come with the runner: console, jsonl, csv, tensorboard, mlflow.
void add_loggers(LoggerRegistry& loggers);

/// Tells the loggers of a run, in the recipe's order: those that say `is_told_at_once` on the calling thread, each other
/// one on a thread of its own, so that none of these slows the run down or another logger. None can end the run.
class Loggers : public Logger {
 public:
  /// At the end of a run loggers have so long together to do what is left.
  static constexpr auto kPatience = std::chrono::seconds(10);

  explicit Loggers(std::chrono::milliseconds patience = kPatience) : patience_(patience) {}
  Loggers(const Loggers&) = delete;
  Loggers& operator=(const Loggers&) = delete;
  ~Loggers() override;

  /// Builds a logger, which is told everything from now on. Throws what building throws.
  void add(const Component<LoggerKind>& chosen, const LoggerInputs& inputs);
  void add(const ComponentName& name, std::unique_ptr<Logger> logger);

  /// Whether a logger wants histograms of this step, and whether any sees tensors at all.
  bool wants_histograms(int64_t step) const;
  bool sees_tensors() const { return sees_tensors_; }
  /// How many pictures of an epoch's first batch loggers want.
  int64_t num_pictures() const { return num_pictures_; }
  void on_graph(const DrawnGraph& graph) { tell(graph); }
  void on_histograms(const HistogramRecord& record) { tell(record); }
  void on_pictures(const PicturesRecord& record) { tell(record); }
  void on_start(const RunInfo& info) override { tell(info); }
  void on_progress(int64_t step, double loss) override { tell(ProgressRecord{step, loss}); }
  void on_step(const StepRecord& record) override { tell(record); }
  void on_evaluation(const EvaluationRecord& record) override { tell(record); }
  void on_checkpoint(const CheckpointRecord& record) override { tell(record); }
  /// Also waits, for `patience` at most, until every logger has been told everything.
  void on_end(const EndRecord& record) override;

 private:
  void tell(const Event& event);
  void finish();

  std::chrono::milliseconds patience_;
  std::vector<std::unique_ptr<ToldLogger>> loggers_;
  std::vector<int64_t> histogram_intervals_;  // that loggers want
  bool sees_tensors_ = false;
  int64_t num_pictures_ = 0;
};

/// Sends what is logged (spdlog) to the console and, with times, to `path`; called once a run. `quiet`: errors only on
/// the console. A person at a terminal sees colours unless NO_COLOR is set. `is_private`: the file is for its owner alone,
/// since the recipe has secrets, and lines may have them, too.
void start_log(const std::string& path, bool quiet, bool verbose, bool is_private = false);
/// Adds an error to the file of `start_log` alone, where there is one.
void write_error_to_log(const std::string& text);

}  // namespace trainrun
