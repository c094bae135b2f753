#pragma once

#include <cstddef>
#include <future>
#include <system_error>
#include <type_traits>

namespace trainrun {

/// So many bytes to be written are worth a thread: they are hashed in 2 ms, and it takes some 50 us to start.
constexpr size_t kWorthAThread = size_t{4} << 20;

/// Runs `work` on a thread of its own; where the system allows no more threads, in the future's get(). If it is not
/// asked for its result, what `work` refers to must outlive the future, which waits.
template <class Work>
std::future<std::invoke_result_t<const Work&>> beside(const Work& work) {
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, work);
  }
}

}  // namespace trainrun
