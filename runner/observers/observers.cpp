#include "runner/observers/observers.h"

#include "registry/build.h"
#include "runner/observers/console.h"
#include "runner/observers/csv_log.h"
#include "runner/observers/jsonl.h"
#include "runner/observers/tensorboard.h"

namespace trainrun {

void add_observers(LoggerRegistry& loggers) {
  add_console(loggers);
  add_jsonl(loggers);
  add_csv(loggers);
  add_tensorboard(loggers);
}

Observers::~Observers() { finish(); }

void Observers::add(const Component<LoggerKind>& chosen, const LoggerInputs& inputs) {
  add(name_of(chosen), build_at_place(chosen, inputs));
}

void Observers::add(const ComponentName& name, std::unique_ptr<Logger> logger) {
  if (logger->is_told_at_once()) {
    observers_.push_back(std::make_unique<PromptObserver>(name, std::move(logger)));
  } else {
    observers_.push_back(std::make_unique<QueuedObserver>(name, std::move(logger)));
  }
}

void Observers::tell(const Event& event) {
  for (const auto& observer : observers_) observer->tell(event);
}

void Observers::on_end(const EndRecord& record) {
  tell(record);
  finish();
}

void Observers::finish() {
  const auto end = Observer::Clock::now();
  for (const auto& observer : observers_) observer->finish(end, patience_);
}

}  // namespace trainrun
