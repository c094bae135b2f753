#include "runner/sweep/trial_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "registry/formats/files/descriptor.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
std::array<std::atomic<int>, kPassedOn.size()> signals_that_came;  // of each, how many
static_assert(std::atomic<int>::is_always_lock_free);

void note_signal(int number) {
  for (size_t i = 0; i < kPassedOn.size(); ++i) {
    if (kPassedOn[i] == number) ++signals_that_came[i];
  }
}

void handle_with(int number, void (*handler)(int)) {
  struct sigaction before = {};
  const bool is_ignored = ::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
  if (number == SIGHUP && is_ignored) return;  // nohup
  struct sigaction action = {};
  action.sa_handler = handler;
  ::sigaction(number, &action, nullptr);
}

std::vector<std::string> environment_with(const std::string& name, const std::string& value) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  if (!std::getenv(name.c_str())) environment.push_back(name + "=" + value);
  return environment;
}

std::vector<char*> texts_for_exec(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

SweepSignals::SweepSignals() {
  for (const int number : kPassedOn) handle_with(number, note_signal);
}

SweepSignals::~SweepSignals() {
  for (const int number : kPassedOn) handle_with(number, SIG_DFL);
}

int SweepSignals::take() {
  for (size_t i = 0; i < kPassedOn.size(); ++i) {
    int count = signals_that_came[i];
    while (count > 0 && !signals_that_came[i].compare_exchange_weak(count, count - 1)) {
    }
    if (count > 0) return kPassedOn[i];
  }
  return 0;
}

TrialProcess::TrialProcess(std::vector<std::string> arguments, int64_t num_threads, const std::string& output) {
  std::vector<std::string> environment = environment_with("OMP_NUM_THREADS", std::to_string(num_threads));
  const std::vector<char*> argv = texts_for_exec(arguments);
  const std::vector<char*> envp = texts_for_exec(environment);
  const Descriptor file(::open(output.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (file.number() < 0) throw FileError(output, "open", errno);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
  if (pid_ > 0) return;
  // Only what is safe between fork and exec, which resets the handlers.
  ::setpgid(0, 0);  // a Ctrl-C at the terminal reaches the sweep alone, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  if (::dup2(file.number(), STDOUT_FILENO) < 0 || ::dup2(file.number(), STDERR_FILENO) < 0) ::_exit(1);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

std::optional<int> TrialProcess::exit_code() {
  int status = 0;
  if (!exit_code_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return exit_code_;
}

void TrialProcess::tell(int signal) const {
  if (!exit_code_) ::kill(pid_, signal);
}

}  // namespace trainrun
