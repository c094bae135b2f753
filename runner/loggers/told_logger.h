#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "registry/tensors/component_error.h"
#include "runner/loggers/event_queue.h"
#include "runner/loggers/missed_lines.h"

namespace trainrun {

/// One logger of a run: who it is in the recipe, and how it is told. What it throws is logged once, with its place, and
/// from then on it is left out; but one that could not write (FileError) is told on, and its missing lines are counted.
/// The training thread alone calls these.
class ToldLogger {
 public:
  using Clock = std::chrono::steady_clock;

  ToldLogger(ComponentName name, std::unique_ptr<Logger> logger) : name_(std::move(name)), logger_(std::move(logger)) {}
  virtual ~ToldLogger() = default;
  ToldLogger(const ToldLogger&) = delete;
  ToldLogger& operator=(const ToldLogger&) = delete;

  /// Tells the logger, now or soon.
  virtual void tell(const Event& event) = 0;
  /// Nothing is told any more. Waits until the logger has been told everything, but no longer than `patience` after
  /// `end`.
  virtual void finish(Clock::time_point end, std::chrono::milliseconds patience) {
    static_cast<void>(end), static_cast<void>(patience);
  }

 protected:
  /// Logs a warning about this logger, at its place in the recipe.
  void warn(const std::string& text) const;
  void warn_if_any(const std::string& text) const {
    if (!text.empty()) warn(text);
  }
  void say_that_it_failed(const std::string& text) const;

  ComponentName name_;
  std::unique_ptr<Logger> logger_;  // null: left out
};

/// Tells on the thread that calls it.
class PromptLogger : public ToldLogger {
 public:
  using ToldLogger::ToldLogger;
  void tell(const Event& event) override;
  void finish(Clock::time_point end, std::chrono::milliseconds patience) override;

 private:
  MissedLines missed_;
};

/// Tells on a thread of the logger's own.
class QueuedLogger : public ToldLogger {
 public:
  /// So many events wait for a logger at most: a few megabytes.
  static constexpr size_t kMostWaiting = 10'000;

  QueuedLogger(const ComponentName& name, std::unique_ptr<Logger> logger, size_t most_waiting = kMostWaiting);
  ~QueuedLogger() override;
  void tell(const Event& event) override;
  void finish(Clock::time_point end, std::chrono::milliseconds patience) override;

 private:
  struct Work;
  static void run(Work& work, std::unique_ptr<Logger> logger);
  void say_what_happened();

  std::shared_ptr<Work> work_;  // the thread's, too: it may outlive this object
  std::thread thread_;
  bool failed_ = false;   // and it has been said
  int64_t left_out_ = 0;  // events, for want of room
};

}  // namespace trainrun
