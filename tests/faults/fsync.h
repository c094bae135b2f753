#pragma once

#include <atomic>

namespace trainrun::test {

/// Whether fsync does nothing in this process (tests/main.cpp): it matters when the power fails, and waits for the disk.
inline std::atomic<bool> fsync_does_nothing{false};

/// Where it is set, what is called instead of fsync: it may wait, as a slow disk does, or fail.
inline std::atomic<int (*)(int file)> instead_of_fsync{nullptr};

/// What `work` returns, with an fsync that does nothing.
template <class Work>
auto quickly(const Work& work) {
  struct Guard {
    Guard() { fsync_does_nothing = true; }
    ~Guard() { fsync_does_nothing = false; }
  } const guard;
  return work();
}

}  // namespace trainrun::test
