#include "runner/distributed/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "registry/language/error.h"
#include "registry/language/value.h"
#include "runner/base/own_process.h"
#include "runner/distributed/bounded.h"
#include "runner/distributed/meeting.h"
#include "runner/distributed/rank_monitor.h"
#include "runner/distributed/rank_output.h"

namespace trainrun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStoreOutlivesRanks = 2500;               // milliseconds
constexpr std::chrono::seconds kGrace(3);               // for ranks to end by themselves where one has failed
constexpr std::chrono::milliseconds kTimeOfStore(500);  // to say which rank is lost

/// What one child is told.
struct Share {
  int64_t rank = 0;
  int64_t local_rank = 0;
  std::vector<int> cores;  // its own; empty: those of this process
  int64_t num_threads = 1;
};

std::vector<Share> shares_of(const LaunchOptions& options) {
  const std::vector<int> cores = allowed_cores();
  const int64_t num_ranks = options.num_processes / options.num_machines;
  const int64_t num_cores = cores.empty() ? std::thread::hardware_concurrency() : static_cast<int64_t>(cores.size());
  const int64_t each = num_cores / num_ranks;
  std::vector<Share> shares;
  for (int64_t i = 0; i < num_ranks; ++i) {
    Share share;
    share.rank = options.machine_rank * num_ranks + i;
    share.local_rank = i;
    share.num_threads = std::max<int64_t>(1, each);
    if (options.pin_cores && !cores.empty() && each > 0) {
      share.cores.assign(cores.begin() + i * each, cores.begin() + (i + 1) * each);
    }
    shares.push_back(share);
  }
  return shares;
}

/// The child's environment: this process's, with the variables that torchrun sets.
std::vector<std::string> environment_of(const Share& share, const LaunchOptions& options, int port) {
  std::vector<std::string> environment = own_environment();
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(environment, [&](const std::string& entry) { return entry.starts_with(name + "="); });
    environment.push_back(name + "=" + value);
  };
  set("RANK", std::to_string(share.rank));
  set("LOCAL_RANK", std::to_string(share.local_rank));
  set("WORLD_SIZE", std::to_string(options.num_processes));
  set("LOCAL_WORLD_SIZE", std::to_string(options.num_processes / options.num_machines));
  set("MASTER_ADDR", options.address);
  set("MASTER_PORT", std::to_string(port));
  set("TRAINRUN_LAUNCHED", "1");
  if (!std::getenv("OMP_NUM_THREADS")) set("OMP_NUM_THREADS", std::to_string(share.num_threads));
  return environment;
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
    struct sigaction hangup = {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    hears_hangup_ = hangup.sa_handler != SIG_IGN;  // nohup
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) ::sigaction(signal, &action, nullptr);
    if (hears_hangup_) ::sigaction(SIGHUP, &action, nullptr);
  }
  ~SignalPipe() {
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, SIG_DFL);
    if (hears_hangup_) std::signal(SIGHUP, SIG_DFL);
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  /// To wait for.
  int read_end() const { return ends_[0]; }

  /// The next signal; 0 where none has come.
  int next() const {
    char byte = 0;
    return ::read(ends_[0], &byte, 1) == 1 ? byte : 0;
  }

 private:
  static inline int write_end = -1;
  int ends_[2] = {-1, -1};
  bool hears_hangup_ = false;
};

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

/// Waits until all machines have come to the store.
void wait_for_machines(const LaunchOptions& options, c10d::Store& store, Clock::time_point deadline) {
  const auto key_of = [](int64_t machine) { return "machine/" + std::to_string(machine); };
  if (store.add(key_of(options.machine_rank), 1) > 1) {
    throw Error("another machine has come with machine_rank=" + std::to_string(options.machine_rank) +
                "; give each machine a different number");
  }
  std::vector<std::string> machines;
  for (int64_t machine = 0; machine < options.num_machines; ++machine) machines.push_back(key_of(machine));
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  try {
    store.wait(machines, std::max(left, std::chrono::milliseconds(1)));
  } catch (const std::exception&) {
    std::erase_if(machines, [&](const std::string& machine) { return store.check({machine}); });
    if (machines.empty()) throw;
    for (std::string& machine : machines) machine.replace(machine.find('/'), 1, " ");
    throw Error("of " + std::to_string(options.num_machines) + " machines, " + join(machines) +
                (machines.size() == 1 ? " has" : " have") + " not come within " +
                std::to_string(options.timeout.count()) +
                " s (distributed.meeting_timeout); start the same command there, with its machine_rank");
  }
}

/// The store of the ranks; for several machines at the place that they have been told, once all of them have come.
c10::intrusive_ptr<c10d::TCPStore> meet_machines(const LaunchOptions& options) {
  const bool is_keeper = options.machine_rank == 0;
  if (options.num_machines == 1) return open_store(options.address, 0, true, options.timeout);
  const auto deadline = Clock::now() + options.timeout;
  auto store = open_store(is_keeper ? "127.0.0.1" : options.address, options.port, is_keeper, options.timeout);
  const std::function<bool()> wait = [options, store, deadline] {
    wait_for_machines(options, *store, deadline);
    return true;
  };
  if (run_bounded(wait, deadline + std::chrono::seconds(1))) return store;
  throw Error("machine 0, which keeps the ranks' store at " + options.address + ":" + std::to_string(options.port) +
              ", has not answered within " + std::to_string(options.timeout.count()) +
              " s (distributed.meeting_timeout)");
}

/// This machine's ranks, while they run.
class Ranks {
 public:
  Ranks(const LaunchOptions& options, const std::vector<std::string>& arguments,
        const c10::intrusive_ptr<c10d::TCPStore>& store)
      : store_(store) {
    const int port = store->getPort();
    for (const Share& share : shares_of(options)) {
      Child& child = children_.emplace_back();
      child.rank = share.rank;
      if (share.rank != 0) child.output.emplace(share.rank, STDERR_FILENO);
      child.pid = start_process({.arguments = arguments,
                                 .environment = environment_of(share, options, port),
                                 .cores = share.cores,
                                 .output = child.output ? child.output->write_end() : -1,
                                 .has_own_group = true});
      if (child.output) child.output->close_write_end();
    }
  }

  /// Waits until all have ended.
  int wait(const SignalPipe& signals) {
    while (std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; })) {
      wait_for_something(signals);
      while (const int signal = signals.next()) {
        if (signal == SIGCHLD) continue;
        tell_all(signal);
        if (signal == SIGINT || signal == SIGTERM) passed_on_ = signal;  // the others ask to save and to go on
      }
      for (Child& child : children_) note_ending(child);
      if (deadline_ && Clock::now() > *deadline_) tell_all(SIGKILL);
    }
    for (Child& child : children_) {
      if (child.output) child.output->finish();
    }
    return exit_code_;
  }

  bool was_told_to_stop() const { return passed_on_ != 0; }

 private:
  struct Child {
    int64_t rank = 0;
    pid_t pid = -1;
    bool running = true;
    std::optional<RankOutput> output;
  };

  /// A signal, or output, which is handed on; until the deadline, and for a second at most.
  void wait_for_something(const SignalPipe& signals) {
    std::vector<pollfd> ends = {{signals.read_end(), POLLIN, 0}};
    for (const Child& child : children_) ends.push_back({child.output ? child.output->read_end() : -1, POLLIN, 0});
    using std::chrono::milliseconds;
    milliseconds wait(1000);
    if (deadline_)
      wait = std::clamp(std::chrono::ceil<milliseconds>(*deadline_ - Clock::now()), milliseconds(10), wait);
    if (::poll(ends.data(), ends.size(), static_cast<int>(wait.count())) <= 0) return;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (ends[i + 1].revents != 0) children_[i].output->pass_on();
    }
  }

  void tell_all(int signal) const {
    for (const Child& child : children_) {
      if (child.running) ::kill(child.pid, signal);
    }
  }

  /// Where the first that ends badly has ended, the others are stopped.
  void note_ending(Child& child) {
    int status = 0;
    if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) return;
    child.running = false;
    if (child.output) child.output->finish();
    if (exit_code_of(status) == 0 || exit_code_ != 0) return;
    exit_code_ = exit_code_of(status);
    if (passed_on_ != 0 && exit_code_ == 128 + passed_on_) return;  // as it was told
    const Failure own = {child.rank, "rank " + std::to_string(child.rank) + " " + ending_of(status)};
    const Failure first = note_for_ranks(own);
    const bool was_left = first.rank != child.rank;  // it ended because of another one
    const std::string because = was_left ? ", because " + first.text : "";
    std::fprintf(stderr, "trainrun: %s%s; the other ranks are stopped\n", own.text.c_str(), because.c_str());
    tell_all(SIGTERM);
    tell_all(SIGCONT);  // one that is stopped would not hear of it
    for (const Child& other : children_) {
      if (was_left && other.running && other.rank == first.rank) ::kill(other.pid, SIGKILL);
    }
    deadline_ = Clock::now() + kGrace;
  }

  /// The first failure that any of the ranks has noted, or else this one.
  Failure note_for_ranks(const Failure& failure) const {
    const char* job = std::getenv("TORCHELASTIC_RUN_ID");  // the ranks inherit it
    const auto store = c10::make_intrusive<c10d::PrefixStore>(store_prefix(job ? job : ""), store_);
    return note_failure(store, failure, kTimeOfStore);
  }

  c10::intrusive_ptr<c10d::TCPStore> store_;
  std::deque<Child> children_;
  int exit_code_ = 0;
  int passed_on_ = 0;  // the last signal to stop
  std::optional<Clock::time_point> deadline_;
};

}  // namespace

int launch(const LaunchOptions& options, const std::vector<std::string>& arguments) {
  const auto store = meet_machines(options);
  const SignalPipe signals;
  Ranks ranks(options, arguments, store);
  const int exit_code = ranks.wait(signals);
  const bool has_failed = exit_code != 0 && !ranks.was_told_to_stop();
  if (has_failed && options.num_machines > 1 && options.machine_rank == 0) {
    // Ranks on other machines find out by the store whom they have lost.
    pollfd end = {signals.read_end(), POLLIN, 0};
    ::poll(&end, 1, kStoreOutlivesRanks);
  }
  return exit_code;
}

}  // namespace trainrun
