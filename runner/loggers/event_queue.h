#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "runner/loggers/events.h"

namespace trainrun {

/// What waits to be told to a logger, between the training thread, which puts and never waits, and the logger's own,
/// which takes. Bounded: where `most` events wait, a new one is left out, unless it is the run's end. Of progress the
/// newest waits alone, and it wakes nobody more often than people see.
class EventQueue {
 public:
  explicit EventQueue(size_t most) : most_(most) {}

  /// False where there is no room: the event is left out.
  bool put(const Event& event);
  /// Waits for the next event; nothing once the queue is closed and empty.
  std::optional<Event> take();
  /// Nothing is put any more.
  void close();
  /// Events that no one has taken.
  size_t size() const;

 private:
  using Clock = std::chrono::steady_clock;

  const size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool closed_ = false;
  Clock::time_point next_progress_;  // when progress may wake the logger's thread again
};

}  // namespace trainrun
