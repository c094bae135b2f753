#include "runner/observers/observers.h"

#include "runner/observers/console.h"
#include "runner/observers/jsonl.h"

namespace trainrun {

void add_observers(LoggerRegistry& loggers) {
  add_console(loggers);
  add_jsonl(loggers);
}

void Observers::on_start(const RunInfo& info) {
  for (const auto& logger : loggers_) logger->on_start(info);
}

void Observers::on_progress(int64_t step, double loss) {
  for (const auto& logger : loggers_) logger->on_progress(step, loss);
}

void Observers::on_step(const StepRecord& record) {
  for (const auto& logger : loggers_) logger->on_step(record);
}

void Observers::on_evaluation(const EvaluationRecord& record) {
  for (const auto& logger : loggers_) logger->on_evaluation(record);
}

void Observers::on_checkpoint(const CheckpointRecord& record) {
  for (const auto& logger : loggers_) logger->on_checkpoint(record);
}

void Observers::on_end(const EndRecord& record) {
  for (const auto& logger : loggers_) logger->on_end(record);
}

}  // namespace trainrun
