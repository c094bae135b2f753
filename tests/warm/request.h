#pragma once

// What the client asks of the server: see server.cpp. Strings follow, each with its zero: the folder, arguments, variables.

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <ctime>

namespace trainrun::warm {

// How a server is started. Its socket; the client that stands for the program in what the program starts of itself, if
// there is one; and for how many seconds nobody may call before a server ends that does not end with who started it.
inline constexpr const char* kSocketVariable = "TRAINRUN_WARM_SOCKET";
inline constexpr const char* kClientVariable = "TRAINRUN_WARM_CLIENT";
inline constexpr const char* kIdleVariable = "TRAINRUN_WARM_IDLE_S";
inline constexpr char kBegun =
    'b';  // the first byte of an answer; then come the process's number, and at its end the status that waitpid gave
inline constexpr char kRefused = 'r';

struct Request {
  dev_t device;  // of the program's file
  ino_t inode;
  timespec changed;
  mode_t umask;
  std::array<rlimit, RLIM_NLIMITS> limits;
  cpu_set_t cores;
  uint64_t ignored;  // signals, a bit each
  uint32_t num_arguments;
  uint32_t num_variables;
  uint32_t num_bytes;  // of the strings
};

inline void describe_program(const char* path, Request& request) {
  struct stat status{};
  if (stat(path, &status) != 0) return;
  request.device = status.st_dev;
  request.inode = status.st_ino;
  request.changed = status.st_mtim;
}

}  // namespace trainrun::warm
