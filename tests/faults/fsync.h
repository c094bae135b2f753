#pragma once

#include <atomic>

namespace trainrun::test {

/// Whether fsync does nothing in this process (tests/main.cpp): it matters when the power fails, and waits for the disk.
inline std::atomic<bool> fsync_does_nothing{false};

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
