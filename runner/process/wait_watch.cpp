#include "runner/process/wait_watch.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "runner/process/thread_signals.h"

// Of the OpenMP runtime that LibTorch uses; clang has no <omp.h>.
extern "C" int omp_get_num_procs();
// NOLINTNEXTLINE(readability-identifier-naming): its name
extern "C" void GOMP_parallel(void (*function)(void*), void* data, unsigned num_threads, unsigned flags);

namespace trainrun {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);

std::string schedule_of(pid_t thread) { return "/proc/self/task/" + std::to_string(thread) + "/schedstat"; }

/// For how long a thread has waited for a CPU since it began, in nanoseconds. Source: Linux,
/// Documentation/scheduler/sched-stats.rst.
std::optional<int64_t> run_delay(const std::string& path) {
  std::ifstream file(path);
  int64_t running = 0, waiting = 0;
  if (file >> running >> waiting) return waiting;
  return std::nullopt;
}

unsigned more_than_cpus() { return static_cast<unsigned>(omp_get_num_procs()) + 1; }

/// Throws std::system_error where the system does not grant so many threads at once.
void try_threads(unsigned count) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::jthread> threads;  // joined after `end` is set, also where one is not granted
  try {
    for (unsigned i = 0; i < count; ++i) threads.emplace_back([ended] { ended.wait(); });
  } catch (const std::system_error&) {
    end.set_value();
    throw;
  }
  end.set_value();
}

void keep_team(const std::future<void>& end) {
  leave_signals_to_others();
  pthread_setname_np(pthread_self(), "short waits");
  GOMP_parallel([](void*) {}, nullptr, more_than_cpus(), 0);
  end.wait();
}

void watch(const std::string& path) {
  leave_signals_to_others();
  pthread_setname_np(pthread_self(), "wait watch");
  WaitDecision decision;
  std::optional<SurplusThreads> surplus;
  auto before = std::chrono::steady_clock::now();
  std::optional<int64_t> delay = run_delay(path);
  while (delay) {
    std::this_thread::sleep_for(kInterval);
    const auto now = std::chrono::steady_clock::now();
    const std::optional<int64_t> next = run_delay(path);
    if (!next) return;
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - before).count();
    const bool sooner = decision.after(static_cast<double>(*next - *delay) / static_cast<double>(elapsed));
    try {
      if (sooner && !surplus) surplus.emplace();
    } catch (const std::system_error&) {
      return;  // no threads to spare here, and they would be missed elsewhere
    }
    if (!sooner) surplus.reset();
    before = now;
    delay = next;
  }
}

}  // namespace

SurplusThreads::SurplusThreads() {
  try_threads(more_than_cpus() + 1);
  keeper_ = std::thread(keep_team, end_.get_future());
}

SurplusThreads::~SurplusThreads() {
  end_.set_value();
  keeper_.join();  // its team ends with it
}

bool knows_run_delays() { return ::access("/proc/self/schedstat", R_OK) == 0; }

void watch_waits() { std::thread(watch, schedule_of(::gettid())).detach(); }

bool WaitDecision::after(double share) {
  constexpr double kDelayed = 0.1, kCalm = 0.05;
  constexpr int kCalmIntervals = 10;
  num_calm_ = share < kCalm ? num_calm_ + 1 : 0;
  if (share > kDelayed) sleeps_sooner_ = true;
  if (num_calm_ >= kCalmIntervals) sleeps_sooner_ = false;
  return sleeps_sooner_;
}

}  // namespace trainrun
