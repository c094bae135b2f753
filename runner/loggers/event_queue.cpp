#include "runner/loggers/event_queue.h"

namespace trainrun {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(100);

}  // namespace

bool EventQueue::put(const Event& event) {
  const bool is_progress = std::holds_alternative<ProgressRecord>(event);
  const auto now = is_progress ? Clock::now() : Clock::time_point();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_progress && !events_.empty() && std::holds_alternative<ProgressRecord>(events_.back())) {
    events_.back() = event;
  } else if (events_.size() >= most_ && !std::holds_alternative<EndRecord>(event)) {
    return is_progress;
  } else {
    events_.push_back(event);
  }
  if (is_progress && now < next_progress_) return true;
  if (is_progress) next_progress_ = now + kProgressInterval;
  changed_.notify_one();
  return true;
}

std::optional<Event> EventQueue::take() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !events_.empty(); });
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void EventQueue::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_one();
}

size_t EventQueue::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return events_.size();
}

}  // namespace trainrun
