#include "runner/loggers/loggers.h"

#include <algorithm>

#include "registry/kinds/build.h"
#include "runner/loggers/console.h"
#include "runner/loggers/csv_log.h"
#include "runner/loggers/jsonl.h"
#include "runner/loggers/mlflow.h"
#include "runner/loggers/tensorboard.h"

namespace trainrun {

void add_loggers(LoggerRegistry& loggers) {
  add_console(loggers);
  add_jsonl(loggers);
  add_csv(loggers);
  add_tensorboard(loggers);
  add_mlflow(loggers);
}

Loggers::~Loggers() { finish(); }

void Loggers::add(const Component<LoggerKind>& chosen, const LoggerInputs& inputs) {
  add(name_of(chosen), build_at_place(chosen, inputs));
}

void Loggers::add(const ComponentName& name, std::unique_ptr<Logger> logger) {
  if (const auto* sink = dynamic_cast<const TensorSink*>(logger.get())) {
    sees_tensors_ = true;
    num_pictures_ = std::max(num_pictures_, sink->num_pictures());
    if (sink->histograms_every() > 0) histogram_intervals_.push_back(sink->histograms_every());
  }
  if (logger->is_told_at_once()) {
    loggers_.push_back(std::make_unique<PromptLogger>(name, std::move(logger)));
  } else {
    loggers_.push_back(std::make_unique<QueuedLogger>(name, std::move(logger)));
  }
}

bool Loggers::wants_histograms(int64_t step) const {
  return std::any_of(histogram_intervals_.begin(), histogram_intervals_.end(),
                     [&](int64_t every) { return step % every == 0; });
}

void Loggers::tell(const Event& event) {
  for (const auto& logger : loggers_) logger->tell(event);
}

void Loggers::on_end(const EndRecord& record) {
  tell(record);
  finish();
}

void Loggers::finish() {
  const auto end = ToldLogger::Clock::now();
  for (const auto& logger : loggers_) logger->finish(end, patience_);
}

}  // namespace trainrun
