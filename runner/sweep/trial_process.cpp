#include "runner/sweep/trial_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "registry/formats/files/descriptor.h"
#include "registry/language/error.h"
#include "runner/base/own_process.h"

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

std::vector<int> cores_of(int64_t slot, int64_t jobs) {
  if (jobs < 2) return {};
  const std::vector<int> cores = allowed_cores();
  const int64_t each = static_cast<int64_t>(cores.size()) / jobs;
  const auto begin = cores.begin() + each * slot;
  return each == 0 ? std::vector<int>() : std::vector<int>(begin, begin + each);
}

TrialProcess::TrialProcess(std::vector<std::string> arguments, const std::vector<int>& cores,
                           const std::string& output) {
  const Descriptor file(::open(output.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (file.number() < 0) throw FileError(output, "open", errno);
  pid_ = start_process({.arguments = std::move(arguments),
                        .environment = own_environment(),
                        .cores = cores,
                        .output = file.number(),
                        .has_own_group = true});
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
