#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace c10d {
class Store;
}

namespace trainrun {

/// What the ranks do together, in this order while so many steps are done. Each may take a time of its own.
enum class Phase { kMeeting, kStart, kEvaluation, kCheckpoint, kStep };

/// "the meeting", "the start", "step 13", "the evaluation after step 12", "the checkpoint of step 12": while `step`
/// optimizer steps are done.
std::string phase_text(Phase phase, int64_t step);

/// How far a rank has come.
struct RankPosition {
  int64_t come_to = 0;  // how many times it has waited for the others: the same on all ranks
  int64_t step = 0;     // optimizer steps done
  Phase phase = Phase::kMeeting;
};

/// Which rank is lost, and how that is said: "rank 1 has not answered since step 13".
struct Failure {
  int64_t rank = -1;  // -1: none of them, the store
  std::string text;
};

/// Notes a failure in the ranks' store, which must answer within the time, unless another one was noted before. The one
/// that stands.
Failure note_failure(const c10::intrusive_ptr<c10d::Store>& store, const Failure& failure,
                     std::chrono::milliseconds time);

/// Watches over the ranks of a job, on threads of its own, so that none waits for ever.
///
/// Each rank notes in the store, twice a second, that it lives and how far it has come, and looks after the rank before
/// it. One that has been silent for the timeout is lost, and so is a store that has not answered for as long. Whoever
/// finds that notes it in the store for the others. A process that waits for others then ends, with the reason on
/// stderr: waits of Gloo cannot be called off. The same happens where a wait goes on beyond its own deadline, or where
/// a process that has given up does not end. Time in which this process itself does not run (SIGSTOP) does not count.
class RankMonitor {
 public:
  using Duration = std::chrono::milliseconds;
  /// `keeper`: who keeps the store, for errors.
  RankMonitor(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t world_size, Duration timeout,
              std::string keeper);
  ~RankMonitor();
  RankMonitor(const RankMonitor&) = delete;
  RankMonitor& operator=(const RankMonitor&) = delete;

  void set_step(int64_t step);
  /// Returns the phase before.
  Phase set_phase(Phase phase);

  /// While one lives, this process waits for others, for `limit` at most where it is given.
  class Wait {
   public:
    Wait(RankMonitor& monitor, const std::string& what, std::optional<Duration> limit);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    RankMonitor& monitor_;
    std::string what_before_;
    std::optional<Duration> end_before_;
  };

  /// Whether a rank is known to be lost.
  bool has_failed() const;

  /// This rank leaves of itself: it says so with its last beat, and watches over nobody any more.
  void stop();

  /// This rank gives up since communication failed: from now on it is not to be blamed, and must end soon. Returns who
  /// is lost, ": rank 1 has not answered since step 13", or nothing; within a few seconds.
  std::string give_up();

  /// "rank 0 lost the others at step 13, gradients"
  std::string where(const std::string& what) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the threads' too, which may outlive this where the store is silent
};

}  // namespace trainrun
