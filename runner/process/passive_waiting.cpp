// Lets the threads of OpenMP that have nothing to do sleep after some tenths of a millisecond, and much sooner while
// others want their CPUs (wait_watch.h).
//
// Those of libgomp, which LibTorch computes with, otherwise turn in a loop for milliseconds, and where others use the
// machine too they take the CPUs from the threads they wait for: small models train 14 to 45 times slower. libgomp
// asks the environment as it is loaded, before main and before anything could be set there. So the program answers
// itself: its own `getenv` comes before the C library's. Settings that the user has made are kept, and verbs that do
// not train change none. An OpenMP that reads `environ` and does not ask makes the program start anew, with both set there.
#include "runner/process/passive_waiting.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <system_error>

#include "runner/process/wait_watch.h"

namespace trainrun {
namespace {

constexpr const char* kPolicy = "OMP_WAIT_POLICY";
constexpr const char* kTurns = "GOMP_SPINCOUNT";

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a constructor of a library asks, without an argument
char passive[] = "passive";
char few_turns[] = "2000";    // 30 to 100 microseconds
char active[] = "active";     // for the number of turns while the watch holds surplus threads: 1,000, not 100
char many_turns[] = "16000";  // 0.3 to 0.7 milliseconds: several times as long as waking a thread of a virtual machine
enum class Answer { kNoJob, kUsersOwn, kPassive, kWatched, kNoMore } answer = Answer::kNoJob;
bool is_watched = false;
bool openmp_asked = false;
char** own_arguments = nullptr;
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

using GetEnv = char* (*)(const char*);

/// The C library's, or that of a library which was preloaded.
GetEnv next_getenv() {
  static const auto next = reinterpret_cast<GetEnv>(dlsym(RTLD_NEXT, "getenv"));
  return next;
}

}  // namespace

/// No getenv, no C++ objects with constructors: nothing is initialized yet.
__attribute__((no_sanitize("address", "undefined"))) void wait_passively(int argc, char** argv, char** variables) {
  own_arguments = argv;
  for (; *variables; ++variables) {
    if (begins_with(*variables, "OMP_WAIT_POLICY=") || begins_with(*variables, "GOMP_SPINCOUNT=")) {
      answer = Answer::kUsersOwn;
      return;
    }
  }
  if (may_train(argc, argv)) answer = knows_run_delays() ? Answer::kWatched : Answer::kPassive;
}

std::string keep_waiting_passively() {
  if (answer == Answer::kNoJob) return "only verbs that compute need it";
  if (answer == Answer::kUsersOwn) return "OMP_WAIT_POLICY or GOMP_SPINCOUNT was set before the program began";
  is_watched = answer == Answer::kWatched && openmp_asked;
  answer = Answer::kNoMore;
  if (is_watched) {
    try {
      watch_waits();
    } catch (const std::system_error& error) {
      return std::string("nobody watches whether others want the CPUs: ") + error.what();
    }
    return "";
  }
  ::setenv(kPolicy, passive, 1);
  ::setenv(kTurns, few_turns, 1);
  if (openmp_asked) return "";
  ::execv("/proc/self/exe", own_arguments);  // this OpenMP reads `environ`, in which it then finds both
  return std::string("OpenMP was not told, since the program could not start anew: ") + std::strerror(errno);
}

/// What the linker gives all libraries of the program in place of the C library's function.
char* answer_getenv(const char* name) {
  if (answer != Answer::kPassive && answer != Answer::kWatched) return next_getenv()(name);
  if (std::strcmp(name, kPolicy) == 0) return answer == Answer::kWatched ? active : passive;
  if (std::strcmp(name, kTurns) != 0) return next_getenv()(name);
  openmp_asked = true;
  return answer == Answer::kWatched ? many_turns : few_turns;
}

bool waits_are_watched() { return is_watched; }

}  // namespace trainrun

extern "C" char* getenv(const char* name) noexcept { return trainrun::answer_getenv(name); }
