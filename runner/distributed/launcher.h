#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace trainrun {

/// The processes of a job, and this machine's part of them.
struct LaunchOptions {
  int64_t num_processes = 1;  // over all machines
  int64_t num_machines = 1;
  int64_t machine_rank = 0;
  std::string address = "127.0.0.1";  // of machine 0
  int port = 0;                       // there; 0: any, where there is one machine
  std::chrono::seconds timeout{100};  // for other machines to come
  bool pin_cores = true;
};

/// Starts this machine's share of the processes, of this program with `arguments`, one a rank, and waits for them. Of
/// several machines, machine 0 keeps the ranks' store, and all wait for each other first. Rank 0 has the launcher's own
/// stdout and stderr; what other ranks say comes out on stderr, line by line, with their rank before it. Where cores
/// are pinned, each has the same number of those that this process may use, unless there are fewer than ranks.
/// OMP_NUM_THREADS is as many, unless it is set.
/// SIGINT and SIGTERM are passed on. Where a rank fails, the others are stopped: those that do not end by themselves
/// within three seconds are killed, one that no longer answers at once; a line says which was the first, and because of
/// which other one, if any. Killed itself, it takes them along. Returns the exit
/// code: of the first that failed, 128+N where a signal ended it. Throws Error where machines do not find each other.
int launch(const LaunchOptions& options, const std::vector<std::string>& arguments);

}  // namespace trainrun
