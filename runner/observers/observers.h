#pragma once

#include <memory>
#include <vector>

#include "registry/logger.h"

namespace trainrun {

/// Adds the loggers that come with the runner: console, jsonl.
void add_observers(LoggerRegistry& loggers);

/// Tells several loggers, in order.
class Observers : public Logger {
 public:
  explicit Observers(std::vector<std::unique_ptr<Logger>> loggers) : loggers_(std::move(loggers)) {}
  void on_start(const RunInfo& info) override;
  void on_progress(int64_t step, double loss) override;
  void on_step(const StepRecord& record) override;
  void on_evaluation(const EvaluationRecord& record) override;
  void on_checkpoint(const CheckpointRecord& record) override;
  void on_end(const EndRecord& record) override;

 private:
  std::vector<std::unique_ptr<Logger>> loggers_;
};

/// Sends what is logged (spdlog) to the console and, with times, to `path`; called once a run. `quiet`: errors only on
/// the console. A person at a terminal sees colours unless NO_COLOR is set.
void start_log(const std::string& path, bool quiet, bool verbose);
/// Adds an error to the file of `start_log` alone, where there is one.
void write_error_to_log(const std::string& text);

}  // namespace trainrun
