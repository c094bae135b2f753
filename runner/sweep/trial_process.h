#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// While one lives, SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless it is ignored already) are noted, to be passed on to trials.
class SweepSignals {
 public:
  SweepSignals();
  ~SweepSignals();
  SweepSignals(const SweepSignals&) = delete;
  SweepSignals& operator=(const SweepSignals&) = delete;
  /// One that came since this was last called, or 0.
  static int take();
};

/// The cores of the process in place `slot` of so many at once: its part of those that this process may use; empty where
/// there are too few to be divided, or none need be.
std::vector<int> cores_of(int64_t slot, int64_t jobs);

/// This program, started again to train one trial. Where this process is killed, so is that one.
class TrialProcess {
 public:
  /// `arguments`: the program's name first. What it says goes to the end of the file `output`. `cores`: those that it may
  /// use, by which it chooses its threads as it would alone; empty: those of this process. Throws Error, FileError.
  TrialProcess(std::vector<std::string> arguments, const std::vector<int>& cores, const std::string& output);

  /// Once it has ended, its exit code, 128+N where the signal N ended it.
  std::optional<int> exit_code();
  void tell(int signal) const;

 private:
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace trainrun
