#include "runner/base/own_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "registry/language/error.h"

namespace trainrun {
namespace {

/// What execve takes: pointers to the texts, which must outlive them, and a null at the end.
std::vector<char*> exec_texts(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

pid_t start_process(OwnProcess process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : process.cores) CPU_SET(core, &cores);
  const std::vector<char*> argv = exec_texts(process.arguments);
  const std::vector<char*> envp = exec_texts(process.environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
  if (child > 0) return child;
  // Only what is safe between fork and exec, which resets the handlers.
  if (process.has_own_group) ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  if (process.ends_first) {
    const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) static_cast<void>(!::write(score, "1000", 4));  // where that fails, any process may be chosen
  }
  if (!process.cores.empty()) ::sched_setaffinity(0, sizeof cores, &cores);
  const int output = process.output;
  if (output >= 0 && (::dup2(output, STDOUT_FILENO) < 0 || ::dup2(output, STDERR_FILENO) < 0)) ::_exit(1);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::vector<int> allowed_cores() {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

}  // namespace trainrun
