#pragma once

#include <future>
#include <thread>

namespace trainrun {

/// Whether the system says how long a thread has waited for a CPU, which `watch_waits` reads.
bool knows_run_delays();

/// From now on, while others want the CPU of the calling thread, idle threads of OpenMP sleep sooner: after libgomp's 1,000
/// turns instead of those of GOMP_SPINCOUNT. To be called once; the watch lasts as long as the process. Throws
/// std::system_error where the system grants no thread.
///
/// libgomp has no call for that, but it waits so by itself whenever it has more threads than there are CPUs. So a thread
/// looks ten times a second whether the calling one was kept from a CPU, and if it was, keeps threads of libgomp that do
/// nothing (`SurplusThreads`).
void watch_waits();

/// Decides whether idle threads are to sleep sooner.
class WaitDecision {
 public:
  /// `share`: the part of the last interval in which the watched thread waited for a CPU. Above a tenth they are, until it
  /// was below a twentieth ten times in a row.
  bool after(double share);

 private:
  bool sleeps_sooner_ = false;
  int num_calm_ = 0;
};

/// While it exists, libgomp has more threads than there are CPUs: the team of a thread that sleeps.
class SurplusThreads {
 public:
  /// Throws std::system_error where the system does not grant so many threads; libgomp would end the program.
  SurplusThreads();
  ~SurplusThreads();
  SurplusThreads(const SurplusThreads&) = delete;
  SurplusThreads& operator=(const SurplusThreads&) = delete;

 private:
  std::promise<void> end_;
  std::thread keeper_;
};

}  // namespace trainrun
