#include "runner/distributed/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "registry/error.h"

namespace trainrun {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  bool running = true;
};

/// The child's environment: this process's, with the variables that torchrun sets.
std::vector<std::string> environment_of(int64_t rank, int64_t num_processes, uint16_t port) {
  std::vector<std::string> environment;
  bool has_threads = false;
  for (char** entry = environ; *entry; ++entry) {
    environment.emplace_back(*entry);
    has_threads = has_threads || environment.back().starts_with("OMP_NUM_THREADS=");
  }
  const auto set = [&](const std::string& name, const std::string& value) {
    environment.push_back(name + "=" + value);
  };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(num_processes));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  set("TRAINRUN_LAUNCHED", "1");
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  if (!has_threads) set("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, cores / num_processes)));
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start(std::vector<std::string> arguments, std::vector<std::string> environment) {
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> envp = pointers_to(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
  if (child > 0) return child;
  // Only what is safe between fork and exec, which resets the handlers.
  ::setpgid(0, 0);  // a Ctrl-C at the terminal reaches the launcher alone, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

/// Signals as bytes of a pipe: they come to whichever thread, LibTorch's too.
class SignalPipe {
 public:
  SignalPipe() {
    if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
    write_end = ends_[1];
    struct sigaction action = {};
    action.sa_handler = [](int signal) {
      const int saved = errno;
      const auto byte = static_cast<char>(signal);
      static_cast<void>(!::write(write_end, &byte, 1));
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  }
  ~SignalPipe() {
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  /// The next signal; 0 where none comes within a second.
  int wait() const {
    pollfd pipe = {ends_[0], POLLIN, 0};
    constexpr int kSecond = 1000;
    char byte = 0;
    if (::poll(&pipe, 1, kSecond) > 0 && ::read(ends_[0], &byte, 1) == 1) return byte;
    return 0;
  }

 private:
  static inline int write_end = -1;
  int ends_[2] = {-1, -1};
};

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

int launch(int64_t num_processes, const std::vector<std::string>& arguments, int64_t grace_seconds) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore store("127.0.0.1", options);

  const SignalPipe signals;
  std::vector<Child> children;
  for (int64_t rank = 0; rank < num_processes; ++rank) {
    children.push_back({start(arguments, environment_of(rank, num_processes, store.getPort()))});
  }
  const auto tell_all = [&](int signal) {
    for (const Child& child : children) {
      if (child.running) ::kill(child.pid, signal);
    }
  };
  int exit_code = 0;
  int passed_on = 0;  // the last signal
  std::optional<Clock::time_point> deadline;
  while (std::any_of(children.begin(), children.end(), [](const Child& child) { return child.running; })) {
    const int signal = signals.wait();
    if (signal == SIGINT || signal == SIGTERM) tell_all(passed_on = signal);
    int status = 0;
    for (size_t rank = 0; rank < children.size(); ++rank) {
      if (!children[rank].running || ::waitpid(children[rank].pid, &status, WNOHANG) != children[rank].pid) continue;
      children[rank].running = false;
      if (exit_code_of(status) == 0 || exit_code != 0) continue;
      exit_code = exit_code_of(status);
      if (passed_on != 0 && exit_code == 128 + passed_on) continue;  // as it was told
      std::fprintf(stderr, "trainrun: rank %zu %s; the other ranks are stopped\n", rank, ending_of(status).c_str());
      tell_all(SIGTERM);
      deadline = Clock::now() + std::chrono::seconds(grace_seconds);
    }
    if (deadline && Clock::now() > *deadline) tell_all(SIGKILL);
  }
  return exit_code;
}

}  // namespace trainrun
