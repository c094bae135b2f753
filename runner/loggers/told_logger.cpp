#include "runner/loggers/told_logger.h"

#include <spdlog/spdlog.h>

#include "registry/formats/files/descriptor.h"
#include "runner/base/text.h"
#include "runner/process/thread_signals.h"

namespace trainrun {

namespace {

/// Tells it; what is to be said about lines that it could not write.
std::string tell_and_count(Logger& logger, const Event& event, MissedLines& missed) {
  const bool is_line = std::holds_alternative<StepRecord>(event) || std::holds_alternative<EvaluationRecord>(event);
  try {
    tell(logger, event);
  } catch (const FileError& error) {
    return missed.failed(error.what(), is_line);
  }
  return is_line ? missed.succeeded() : "";
}

}  // namespace

void ToldLogger::warn(const std::string& text) const {
  spdlog::warn(Problem{name_.place, name_.path, name_.type + " " + text}.to_string());
}

void ToldLogger::say_that_it_failed(const std::string& text) const {
  warn("failed and receives nothing from now on; training continues: " + text);
}

void PromptLogger::tell(const Event& event) {
  if (!logger_) return;
  try {
    warn_if_any(tell_and_count(*logger_, event, missed_));
  } catch (const std::exception& error) {
    logger_.reset();
    say_that_it_failed(error_text(error));
  }
}

void PromptLogger::finish(Clock::time_point, std::chrono::milliseconds) {
  if (logger_) warn_if_any(missed_.ended());
}

/// What the thread and the logger share.
struct QueuedLogger::Work {
  explicit Work(size_t most_waiting) : queue(most_waiting) {}

  EventQueue queue;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::optional<std::string> failure;
  MissedLines missed;             // the thread's alone until it is done
  std::vector<std::string> said;  // about them, for the training thread to log
};

QueuedLogger::QueuedLogger(const ComponentName& name, std::unique_ptr<Logger> logger, size_t most_waiting)
    : ToldLogger(name, nullptr), work_(std::make_shared<Work>(most_waiting)) {
  thread_ = std::thread([work = work_, own = std::move(logger)]() mutable { run(*work, std::move(own)); });
}

QueuedLogger::~QueuedLogger() { finish(Clock::now(), std::chrono::milliseconds(0)); }

/// The logger is also destroyed here: that may take as long as anything else that it does.
void QueuedLogger::run(Work& work, std::unique_ptr<Logger> logger) {
  leave_signals_to_others();
  std::optional<std::string> failure;
  try {
    while (const auto event = work.queue.take()) {
      std::string text = tell_and_count(*logger, *event, work.missed);
      if (text.empty()) continue;
      const std::lock_guard<std::mutex> lock(work.mutex);
      work.said.push_back(std::move(text));
    }
  } catch (const std::exception& error) {
    failure = error_text(error);
  }
  logger.reset();
  const std::lock_guard<std::mutex> lock(work.mutex);
  work.failure = std::move(failure);
  work.is_done = true;
  work.changed.notify_one();
}

void QueuedLogger::say_what_happened() {
  const std::lock_guard<std::mutex> lock(work_->mutex);
  for (const std::string& text : std::exchange(work_->said, {})) warn(text);
  if (failed_ || !work_->failure) return;
  failed_ = true;
  say_that_it_failed(*work_->failure);
}

void QueuedLogger::tell(const Event& event) {
  say_what_happened();
  if (failed_ || !thread_.joinable() || work_->queue.put(event) || left_out_++ > 0) return;
  warn("is slower than training: " + grouped(static_cast<int64_t>(work_->queue.size())) +
       " lines wait for it; new lines are dropped until it has caught up");
}

void QueuedLogger::finish(Clock::time_point end, std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return;
  work_->queue.close();
  std::unique_lock<std::mutex> lock(work_->mutex);
  const bool is_done = work_->changed.wait_until(lock, end + patience, [&] { return work_->is_done; });
  lock.unlock();
  if (is_done) {
    thread_.join();
  } else {
    thread_.detach();
  }
  say_what_happened();
  if (failed_) return;
  if (is_done) warn_if_any(work_->missed.ended());
  if (left_out_ > 0) warn("was slower than training: " + grouped(left_out_) + " lines were left out");
  if (is_done) return;
  warn("has not finished " + duration(std::chrono::duration<double>(patience).count()) +
       " after the end of the run; it is abandoned, with " + grouped(static_cast<int64_t>(work_->queue.size())) +
       " lines that it has not received");
}

}  // namespace trainrun
