#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace trainrun {

/// `auto`, or a number: the recipe's `num_threads`.
using NumThreads = std::variant<int64_t, std::string>;

/// The CPUs that this process may keep busy: those of its affinity, or fewer where its control group grants less time.
int64_t usable_cpus();

/// How many threads an operation gets. A number in the recipe is taken as it is. `auto` is OMP_NUM_THREADS where that
/// is set, else one for each usable CPU; but one alone where a batch is so little work (`flops` of its forward pass; 0:
/// not known) that threads would wait for each other longer than they compute.
int64_t choose_num_threads(const NumThreads& wanted, int64_t flops, int64_t usable, bool set_by_environment,
                           int64_t by_default);

/// Chooses for this process and tells LibTorch.
void set_num_threads(const NumThreads& wanted, int64_t flops);

/// How threads that have nothing to do wait for the next operation, by the environment that OpenMP read at the start:
/// passively, for so many turns first, or busily for milliseconds.
struct Waiting {
  bool is_busy = true;
  std::string text;  // "passively, after 100 turns (GOMP_SPINCOUNT)"
};
Waiting thread_waiting();

/// Processes and threads of the whole machine that want a CPU now; 0 where the system does not say.
int64_t num_runnable();

/// What to do about threads that wait busily while others want their CPUs; "" where there is no need.
std::string waiting_hint(bool is_busy, int64_t num_threads, int64_t runnable, int64_t usable);

}  // namespace trainrun
