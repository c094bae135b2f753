#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace trainrun {

/// How this program is started once more, as a child that dies with this process.
struct OwnProcess {
  std::vector<std::string> arguments;    // the program's name first
  std::vector<std::string> environment;  // "NAME=VALUE"; `own_environment` for this process's
  std::vector<int> cores = {};           // those that it may use; empty: those of this process
  int output = -1;                       // what its standard output and error become; -1: this process's own
  bool has_own_group = false;            // a Ctrl-C at the terminal then reaches this process alone, which passes it on
  bool ends_first = false;               // the system ends it before others if memory runs out
};

/// Its process id. Throws Error where the system starts no process.
pid_t start_process(OwnProcess process);

std::vector<std::string> own_environment();

/// The cores that this process may use, in ascending order; empty where the system has more than can be told.
std::vector<int> allowed_cores();

}  // namespace trainrun
