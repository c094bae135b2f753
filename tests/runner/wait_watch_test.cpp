#include "runner/process/wait_watch.h"

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "tests/doctest.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)

namespace {

int64_t num_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

/// Whether there are as many threads as wanted before long.
template <class Condition>
bool comes_true(const Condition& condition) {
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > latest) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace

TEST_CASE("threads sleep sooner as soon as others want the CPU, until it was calm for a while") {
  WaitDecision decision;
  CHECK_FALSE(decision.after(0.0));
  CHECK_FALSE(decision.after(0.09));
  CHECK(decision.after(0.3));
  for (int i = 0; i < 9; ++i) CHECK(decision.after(0.01));
  CHECK(decision.after(0.06));  // not calm: counting begins anew
  for (int i = 0; i < 9; ++i) CHECK(decision.after(0.01));
  CHECK_FALSE(decision.after(0.01));
  CHECK_FALSE(decision.after(0.09));
}

TEST_CASE("surplus threads are more than there are CPUs, and go when they are no longer wanted") {
  const int64_t before = num_threads();
  {
    const SurplusThreads surplus;
    const auto processors = static_cast<int64_t>(std::thread::hardware_concurrency());
    CHECK(comes_true([&] { return num_threads() - before > processors; }));
  }
  CHECK(comes_true([&] { return num_threads() <= before; }));
}
