#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace trainrun {

/// What `operation` gives, which runs on a thread of its own; nothing where it has not ended by the deadline. It then
/// goes on, so it must own everything that it uses. Throws what it throws in time. For calls that have no deadline
/// themselves, such as most of c10d::TCPStore's, which wait for a silent server for ever.
template <class Result>
std::optional<Result> run_bounded(std::function<Result()> operation, std::chrono::steady_clock::time_point deadline) {
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(operation));
  std::future<Result> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (result.wait_until(deadline) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace trainrun
