#include "runner/distributed/rank_monitor.h"

#include <spdlog/spdlog.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>
#include <tuple>
#include <vector>

#include "registry/language/value.h"
#include "runner/distributed/bounded.h"

namespace trainrun {

/// What a rank last noted.
struct Heartbeat {
  int64_t number = -1;  // -1: it has not come
  RankPosition position;
  bool leaves = false;  // of itself; it is not lost
};

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBeat(500);
constexpr milliseconds kTick(100);
constexpr milliseconds kLongestGap(1000);     // between two ticks, as long as this process runs
constexpr milliseconds kTimeToThrow(300);     // from a failure on: a wait that throws by itself says more
constexpr milliseconds kStoreOutlives(1500);  // from a failure on: the others read it from there
constexpr milliseconds kTimeToWait(1000);     // from a failure on: for those that compute to come to a wait
constexpr milliseconds kTimeToEnd(3500);      // from giving up on
constexpr milliseconds kTimeToFindOut(2500);  // which rank is lost
constexpr milliseconds kTimeForLastBeat(1000);
constexpr const char* kFailure = "failure";

std::string key_of(int64_t rank) { return "heart/" + std::to_string(rank); }

std::string rank_name(int64_t rank) { return "rank " + std::to_string(rank); }

std::string to_text(const Heartbeat& beat) {
  std::ostringstream text;
  text << beat.number << ' ' << beat.position.come_to << ' ' << beat.position.step << ' '
       << static_cast<int>(beat.position.phase) << ' ' << beat.leaves;
  return text.str();
}

Heartbeat read_heartbeat(c10d::Store& store, int64_t rank) {
  Heartbeat beat;
  if (!store.check({key_of(rank)})) return beat;
  std::istringstream text(store.get_to_str(key_of(rank)));
  int phase = 0;
  text >> beat.number >> beat.position.come_to >> beat.position.step >> phase >> beat.leaves;
  beat.position.phase = static_cast<Phase>(phase);
  return beat;
}

std::optional<Failure> failure_from(const std::string& text) {
  const size_t end = text.find(' ');
  if (end == std::string::npos) return std::nullopt;
  return Failure{parse_integer(text.substr(0, end)).value_or(-1), text.substr(end + 1)};
}

std::optional<Failure> read_failure(c10d::Store& store) {
  if (!store.check({kFailure})) return std::nullopt;
  return failure_from(store.get_to_str(kFailure));
}

/// Notes it unless another one has been noted before; the one that stands.
Failure note_in(c10d::Store& store, const Failure& failure) {
  const std::string stands = store.compareSet(kFailure, "", std::to_string(failure.rank) + " " + failure.text);
  return failure_from(stands).value_or(failure);
}

/// Where a rank was lost whose last beat was at `last`, while this one waits for it at `own`: it has been with this
/// rank at all waits before, so that it has come at least as far.
std::string lost_at(const RankPosition& last, const RankPosition& own) {
  const auto order = [](const RankPosition& position) {
    return std::tuple(position.come_to, position.step, position.phase);
  };
  const RankPosition& farther = order(last) < order(own) ? own : last;
  return phase_text(farther.phase, farther.step);
}

Failure silent(int64_t rank, const Heartbeat& last, const RankPosition& own) {
  if (last.number < 0) return {rank, rank_name(rank) + " has not come"};
  return {rank, rank_name(rank) + " has not answered since " + lost_at(last.position, own)};
}

/// The ranks without a recent heartbeat, else those that are behind this rank; empty if all are present.
std::optional<Failure> look_around(c10d::Store& store, int64_t rank, int64_t world_size, const RankPosition& own) {
  std::vector<Heartbeat> before;
  for (int64_t other = 0; other < world_size; ++other) before.push_back(read_heartbeat(store, other));
  for (int i = 0; i < 6; ++i) {
    if (auto noted = read_failure(store)) return noted;
    std::this_thread::sleep_for(kBeat / 2);
  }
  std::optional<Failure> lost;
  std::optional<Failure> behind;
  const auto add = [](std::optional<Failure>& to, const Failure& found) {
    if (to) to->text += ", " + found.text;
    if (!to) to = found;
  };
  for (int64_t other = 0; other < world_size; ++other) {
    if (other == rank) continue;
    const Heartbeat beat = read_heartbeat(store, other);
    if (beat.leaves) continue;
    if (beat.number == before[static_cast<size_t>(other)].number) {
      add(lost, silent(other, beat, own));
    } else if (beat.position.come_to < own.come_to) {
      add(behind, {other, rank_name(other) + " is behind, at " + phase_text(beat.position.phase, beat.position.step)});
    }
  }
  if (!lost) return behind;
  return note_in(store, *lost);
}

}  // namespace

std::string phase_text(Phase phase, int64_t step) {
  const std::string done = std::to_string(step);
  const std::string next = std::to_string(step + 1);
  switch (phase) {
    case Phase::kMeeting:
      return "the meeting before step " + next;
    case Phase::kStart:
      return "the start before step " + next;
    case Phase::kEvaluation:
      return "the evaluation after step " + done;
    case Phase::kCheckpoint:
      return "the checkpoint of step " + done;
    case Phase::kStep:
      break;
  }
  return "step " + next;
}

Failure note_failure(const c10::intrusive_ptr<c10d::Store>& store, const Failure& failure, milliseconds time) {
  try {
    const std::function<Failure()> note = [store, failure] { return note_in(*store, failure); };
    return run_bounded(note, Clock::now() + time).value_or(failure);
  } catch (const std::exception&) {  // the store is gone, and what was noted with it
    return failure;
  }
}

/// What the threads share. Times are those in which this process ran, since the monitor was made.
struct RankMonitor::State {
  State(c10::intrusive_ptr<c10d::Store> given, int64_t own_rank, int64_t size, Duration silence, std::string kept_by)
      : store(std::move(given)), rank(own_rank), world_size(size), timeout(silence), keeper(std::move(kept_by)) {}

  bool keeps_store() const { return rank == 0 && keeper == rank_name(0); }
  std::string where(const std::string& what) const {
    return rank_name(rank) + " lost the others during " + phase_text(own.phase, own.step) + ", " + what;
  }
  Failure store_failure() const {
    const int64_t lost = keeper == rank_name(0) ? 0 : -1;
    return {lost, keeper + ", which keeps the ranks' store, has not answered since " + phase_text(own.phase, own.step)};
  }
  void fail(const Failure& found) {
    if (failure) return;
    failure = found;
    failed_at = awake;
  }
  /// Takes notice of the rank before this one. Returns a failure that is to be noted for the others.
  std::optional<Failure> hear(const Heartbeat& beat);
  std::string reason_to_end();

  const c10::intrusive_ptr<c10d::Store> store;
  const int64_t rank;
  const int64_t world_size;
  const Duration timeout;
  const std::string keeper;

  std::mutex mutex;  // of all that follows
  std::condition_variable wake;
  bool ends = false;
  bool heart_has_ended = false;
  Duration awake{0};
  RankPosition own;
  bool gives_up = false;
  std::string last_what;  // what it gave up at
  Duration gave_up_at{0};
  Heartbeat heard;  // of the rank before this one
  Duration heard_at{0};
  Duration answered_at{0};  // by the store
  std::optional<Failure> failure;
  Duration failed_at{0};
  std::string waits_for;  // empty: this rank does not wait
  std::optional<Duration> wait_end;
};

namespace {

[[noreturn]] void end_process(const std::string& reason) {
  std::signal(SIGALRM, SIG_DFL);
  ::alarm(2);  // where nobody reads what is said here
  spdlog::error("stopped: {}", reason);
  std::fprintf(stderr, "trainrun: %s\n", reason.c_str());
  std::fflush(nullptr);
  ::_exit(EXIT_FAILURE);
}

}  // namespace

std::optional<Failure> RankMonitor::State::hear(const Heartbeat& beat) {
  answered_at = awake;
  const bool lives = beat.number != heard.number || beat.leaves;
  heard = beat;
  if (lives) heard_at = awake;
  if (failure || gives_up || ends || awake - heard_at <= timeout) return std::nullopt;
  return silent((rank + world_size - 1) % world_size, beat, own);
}

std::string RankMonitor::State::reason_to_end() {
  if (awake - answered_at > timeout) fail(store_failure());
  const std::string because = failure ? ": " + failure->text : "";
  if (gives_up) return awake - gave_up_at > kTimeToEnd ? where(last_what) + because : "";
  if (waits_for.empty()) {
    // A rank alone that computes will wait for the lost one in vain; what it writes is let be.
    const bool computes = own.phase == Phase::kStep || own.phase == Phase::kEvaluation;
    return failure && computes && awake - failed_at > kTimeToWait ? where("computing") + because : "";
  }
  const Duration patience = keeps_store() ? kStoreOutlives : kTimeToThrow;
  if (failure && awake - failed_at >= patience) return where(waits_for) + because;
  if (wait_end && awake > *wait_end) return where(waits_for) + because + " (nothing has come until the timeout)";
  return "";
}

namespace {

/// Notes, as long as the state's owner is there, that this rank lives; reads what the others have noted.
template <class State>
void beat(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex, std::defer_lock);
  try {
    const auto store = state->store->clone();  // a connection of its own: it may have to wait
    const int64_t before = (state->rank + state->world_size - 1) % state->world_size;
    for (int64_t number = 0, last = 0; !last; ++number) {
      lock.lock();
      last = state->ends;
      const std::string own = to_text({number, state->own, state->ends || state->gives_up});
      lock.unlock();
      store->set(key_of(state->rank), own);
      const Heartbeat heard = read_heartbeat(*store, before);
      std::optional<Failure> failure = read_failure(*store);
      lock.lock();
      const auto found = state->hear(heard);
      lock.unlock();
      if (found && !failure) failure = note_in(*store, *found);
      lock.lock();
      if (failure) state->fail(*failure);
      state->wake.wait_for(lock, kBeat, [&] { return state->ends; });
      lock.unlock();
    }
  } catch (const std::exception&) {  // the store is gone: it will not have answered in time
    if (lock.owns_lock()) lock.unlock();
  }
  lock.lock();
  state->heart_has_ended = true;
  state->wake.notify_all();
}

template <class State>
void watch(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  auto last = Clock::now();
  while (!state->ends) {
    state->wake.wait_for(lock, kTick);
    const auto now = Clock::now();
    state->awake += std::min(kLongestGap, std::chrono::duration_cast<milliseconds>(now - last));
    last = now;
    const std::string reason = state->reason_to_end();
    if (!reason.empty()) end_process(reason);
  }
}

}  // namespace

RankMonitor::RankMonitor(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t world_size,
                         Duration timeout, std::string keeper)
    : state_(std::make_shared<State>(store, rank, world_size, timeout, std::move(keeper))) {
  std::thread([state = state_] { beat(state); }).detach();
  std::thread([state = state_] { watch(state); }).detach();
}

/// Whoever is not to be blamed says so with its last beat; an error of this rank's own is noted for the others.
RankMonitor::~RankMonitor() {
  std::unique_lock lock(state_->mutex);
  const bool is_own_error = std::uncaught_exceptions() > 0 && !state_->gives_up && !state_->failure && !state_->ends;
  const bool others_read_from_here = (state_->gives_up || is_own_error) && state_->keeps_store();
  const Failure own = {state_->rank, rank_name(state_->rank) + " has ended with an error at " +
                                         phase_text(state_->own.phase, state_->own.step)};
  lock.unlock();
  if (is_own_error) note_failure(state_->store, own, kTimeForLastBeat);
  if (others_read_from_here) std::this_thread::sleep_for(kStoreOutlives);
  stop();
}

bool RankMonitor::has_failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure.has_value();
}

void RankMonitor::stop() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->wake.notify_all();
  state_->wake.wait_for(lock, kTimeForLastBeat, [&] { return state_->heart_has_ended; });
}

void RankMonitor::set_step(int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->own.step = step;
}

Phase RankMonitor::set_phase(Phase phase) {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->own.phase, phase);
}

RankMonitor::Wait::Wait(RankMonitor& monitor, const std::string& what, std::optional<Duration> limit)
    : monitor_(monitor) {
  const std::lock_guard lock(monitor.state_->mutex);
  State& state = *monitor.state_;
  ++state.own.come_to;
  what_before_ = std::exchange(state.waits_for, what);
  end_before_ = state.wait_end;
  if (limit) state.wait_end = state.awake + *limit;
}

RankMonitor::Wait::~Wait() {
  const std::lock_guard lock(monitor_.state_->mutex);
  monitor_.state_->waits_for = what_before_;
  monitor_.state_->wait_end = end_before_;
}

std::string RankMonitor::give_up() {
  std::unique_lock lock(state_->mutex);
  if (!std::exchange(state_->gives_up, true)) {
    state_->gave_up_at = state_->awake;
    state_->last_what = state_->waits_for;
  }
  if (!state_->failure) {
    const auto look = [store = state_->store, rank = state_->rank, size = state_->world_size, own = state_->own] {
      return look_around(*store, rank, size, own);
    };
    lock.unlock();
    std::optional<Failure> found;
    bool has_answered = false;
    try {
      const auto answer = run_bounded(std::function<std::optional<Failure>()>(look), Clock::now() + kTimeToFindOut);
      has_answered = answer.has_value();
      found = answer.value_or(std::nullopt);
    } catch (const std::exception&) {  // the store is gone
      has_answered = false;
    }
    lock.lock();
    if (!has_answered) found = state_->store_failure();
    if (found) state_->fail(*found);
  }
  return state_->failure ? ": " + state_->failure->text : "";
}

std::string RankMonitor::where(const std::string& what) const {
  const std::lock_guard lock(state_->mutex);
  return state_->where(what);
}

}  // namespace trainrun
