#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "registry/formats/files/descriptor.h"

namespace trainrun {

/// How far each rank of a machine has come, counted from 1, in memory that all of them map; waits for others.
///
/// A wait looks again and again at first, then sleeps. It ends where a rank that is waited for has died, one has given up, `lost` says
/// that one is lost, or the timeout is over, in which time that this process does not run is not counted. It then throws
/// std::runtime_error, as all further waits do at once.
class RankCounters {
 public:
  using Duration = std::chrono::milliseconds;
  enum class Event { kReady, kDone };  // a rank's numbers are there; it has read and written all that it had to

  static size_t bytes_for(int world_size);
  /// `memory`: begins with a page; zeros, or what other ranks have counted already.
  RankCounters(char* memory, int rank, int world_size, Duration timeout);

  /// Once all have come this far: from now on ranks that die are noticed.
  void watch_processes();
  Duration timeout() const { return timeout_; }
  void set_timeout(Duration timeout) { timeout_ = timeout; }
  void set_lost(std::function<bool()> lost) { lost_ = std::move(lost); }

  /// This rank has come to `number`.
  void set(Event event, uint32_t number);
  /// Until all others have.
  void await(Event event, uint32_t number);
  /// Whether `counted` is as far as `number`; numbers wrap around.
  static bool has_come(uint32_t counted, uint32_t number) { return static_cast<int32_t>(counted - number) >= 0; }

  /// Tells whoever waits for this rank that it has failed.
  void give_up();
  /// Throws where a wait has failed before.
  void require_intact() const;
  [[noreturn]] void fail(const std::string& why);

 private:
  struct Counter;
  struct Lane;
  struct Header;

  Header& header() const;
  Lane& lane(int rank) const;
  Counter& counter(int rank, Event event) const;
  void await_rank(int rank, Counter& counter, uint32_t number);

  char* memory_;
  int rank_;
  int world_size_;
  Duration timeout_;
  Duration busy_wait_{0};
  std::function<bool()> lost_;
  std::vector<Descriptor> processes_;  // of the ranks: readable when they have ended
  std::string failure_;
};

}  // namespace trainrun
