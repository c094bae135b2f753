// Lets the threads of OpenMP that have nothing to do sleep after some tens of microseconds.
//
// Those of libgomp, which LibTorch computes with, otherwise turn in a loop for milliseconds, and where others use the
// machine too they take the CPUs from the threads they wait for: small models train 14 to 45 times slower. libgomp
// reads its settings from the environment as it is loaded, before main. So the program sets them and executes itself
// again, before the constructors of its libraries have run, which take most of its start-up time. Settings that the
// user has made are kept, and verbs that do not train change none.
#include "runner/process/passive_waiting.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>

namespace trainrun {
namespace {

constexpr size_t kMostVariables = 8192;
constexpr size_t kLongestPath = 4096;

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): nothing can be allocated yet
char waiting_policy[] = "OMP_WAIT_POLICY=passive";
char waiting_turns[] = "GOMP_SPINCOUNT=2000";  // 30 to 100 microseconds
char* new_environment[kMostVariables];
char own_path[kLongestPath];
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

bool begins_with(const char* text, const char* prefix) { return std::strncmp(text, prefix, std::strlen(prefix)) == 0; }

/// Whether the command line asks for a job: its first word is not another verb's.
bool may_train(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const char* word = argv[i];
    for (const char* no_job :
         {"--help", "-h", "--version", "validate", "explain", "list", "schema", "env", "config", "launch", "help"}) {
      if (std::strcmp(word, no_job) == 0) return false;
    }
    if (word[0] != '-') return true;
  }
  return false;
}

/// This program's own file; false where another one runs it (the dynamic loader, called by hand).
bool find_own_path() {
  const ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
  if (length <= 0 || static_cast<size_t>(length) >= sizeof own_path - 1) return false;
  own_path[length] = '\0';
  const char* slash = std::strrchr(own_path, '/');
  return slash && !begins_with(slash + 1, "ld-") && !begins_with(slash + 1, "ld.");
}

}  // namespace

/// Runs before the C library is initialized: no allocation, no getenv, no C++ objects with constructors.
__attribute__((no_sanitize("address", "undefined"))) void wait_passively(int argc, char** argv, char** variables) {
  size_t count = 0;
  for (; variables[count]; ++count) {
    if (begins_with(variables[count], "OMP_WAIT_POLICY=") || begins_with(variables[count], "GOMP_SPINCOUNT=")) return;
    if (count + 4 > kMostVariables) return;
    new_environment[count] = variables[count];
  }
  if (!may_train(argc, argv) || !find_own_path()) return;
  new_environment[count] = waiting_policy;
  new_environment[count + 1] = waiting_turns;
  new_environment[count + 2] = nullptr;
  execve(own_path, argv, new_environment);  // where it fails, the program goes on as it is
}

}  // namespace trainrun
