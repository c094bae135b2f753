#include "runner/device/threads.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runner/device/control_group.h"
#include "runner/process/passive_waiting.h"
#include "runner/process/torch_settings.h"

namespace trainrun {
namespace {

// Below this, a forward and a backward pass of a batch take well under a millisecond on one core: a dozen operations of
// which each would wake the other threads and wait for them.
constexpr int64_t kSmallWork = 4'000'000;  // operations
constexpr int64_t kBusyTurns = 10'000;     // a turn takes some 15 to 50 nanoseconds

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

int64_t usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int64_t allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
  const double granted = std::min(control_group_limits().cpus.value_or(HUGE_VAL), static_cast<double>(allowed));
  return std::max<int64_t>(1, std::llround(std::ceil(granted)));
}

int64_t choose_num_threads(const NumThreads& wanted, int64_t flops, int64_t usable, bool set_by_environment,
                           int64_t by_default) {
  if (const auto* number = std::get_if<int64_t>(&wanted)) return *number;
  if (set_by_environment) return by_default;
  if (flops > 0 && flops < kSmallWork) return 1;
  return std::min(by_default, usable);
}

void set_num_threads(const NumThreads& wanted, int64_t flops) {
  const bool set_by_environment = !variable("OMP_NUM_THREADS").empty();
  const int64_t by_default = at::get_num_threads();
  const int64_t chosen = choose_num_threads(wanted, flops, usable_cpus(), set_by_environment, by_default);
  if (chosen != by_default) set_threads_of_operations(chosen);
}

Waiting thread_waiting() {
  if (waits_are_watched()) return {false, "passively, after 16000 turns, or 1000 while others want the CPUs"};
  const std::string policy = variable("OMP_WAIT_POLICY");
  const std::string turns = variable("GOMP_SPINCOUNT");
  const bool passive = policy == "passive" || policy == "PASSIVE";
  if (turns.empty() && passive) return {false, "passively (OMP_WAIT_POLICY)"};
  if (turns.empty()) return {true, "busily, for milliseconds"};
  char* end = nullptr;
  const long long number = std::strtoll(turns.c_str(), &end, 10);
  const bool is_busy = end == turns.c_str() || *end != '\0' || number > kBusyTurns;
  return {is_busy, (is_busy ? "busily, for " : "passively, after ") + turns + " turns (GOMP_SPINCOUNT)"};
}

int64_t num_runnable() {
  std::ifstream file("/proc/loadavg");  // "0.20 0.18 0.12 1/80 11206": the fourth is runnable/all
  std::string average;
  int64_t runnable = 0;
  file >> average >> average >> average >> runnable;
  return runnable;
}

std::string waiting_hint(bool is_busy, int64_t num_threads, int64_t runnable, int64_t usable) {
  if (!is_busy || num_threads <= 1 || runnable <= usable) return "";
  return "others use this machine's CPUs too (" + std::to_string(runnable) + " want one, there are " +
         std::to_string(usable) +
         "), and threads that wait busily slow a small model down many times; unset OMP_WAIT_POLICY and "
         "GOMP_SPINCOUNT, or write num_threads: 1";
}

}  // namespace trainrun
