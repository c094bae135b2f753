#include "runner/distributed/rank_counters.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <stdexcept>

#include "runner/device/control_group.h"

namespace trainrun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kCacheLine = 64;
constexpr milliseconds kLook(50);  // between two looks at those who are waited for
constexpr milliseconds kLongestLook(1000);
// A processor that sleeps takes some tens of microseconds to wake, on a virtual machine more, so a rank looks again and
// again at first; after kSpin whoever else is ready to run on this processor goes before it.
constexpr std::chrono::microseconds kSpin(30);
constexpr std::chrono::milliseconds kYield(2);

/// Whether each rank can have a processor, so that a wait need not give its own away at once.
bool has_processors_for(int ranks) {
  const auto online = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::min(control_group_limits().cpus.value_or(online), online) >= ranks;
}

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void wake_sleepers(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Until the word is changed, some time is over, or a signal comes.
void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  const timespec limit{0, std::chrono::nanoseconds(kLook).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

}  // namespace

struct RankCounters::Counter {
  alignas(kCacheLine) std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

struct RankCounters::Lane {
  Counter ready;
  Counter done;
  alignas(kCacheLine) std::atomic<int32_t> process;
};

struct RankCounters::Header {
  alignas(kCacheLine) std::atomic<uint32_t> failed;  // rank + 1 of the first that gave up
};

size_t RankCounters::bytes_for(int world_size) {
  return sizeof(Header) + sizeof(Lane) * static_cast<size_t>(world_size);
}

RankCounters::RankCounters(char* memory, int rank, int world_size, Duration timeout)
    : memory_(memory), rank_(rank), world_size_(world_size), timeout_(timeout) {
  busy_wait_ = has_processors_for(world_size) ? kYield : Duration(0);
  lane(rank).process = ::getpid();
}

RankCounters::Header& RankCounters::header() const { return *reinterpret_cast<Header*>(memory_); }

RankCounters::Lane& RankCounters::lane(int rank) const {
  return *(reinterpret_cast<Lane*>(memory_ + sizeof(Header)) + rank);
}

RankCounters::Counter& RankCounters::counter(int rank, Event event) const {
  return event == Event::kReady ? lane(rank).ready : lane(rank).done;
}

void RankCounters::watch_processes() {
  for (int r = 0; r < world_size_; ++r) {
    // Older kernels have no such descriptors; a rank that has died is then found by its silence.
    const int process = lane(r).process.load();
    processes_.emplace_back(r == rank_ ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  }
}

void RankCounters::set(Event event, uint32_t number) {
  Counter& own = counter(rank_, event);
  own.value.store(number);
  if (own.sleepers.load() > 0) wake_sleepers(own.value);
}

void RankCounters::await(Event event, uint32_t number) {
  require_intact();
  for (int r = 0; r < world_size_; ++r) {
    Counter& other = counter(r, event);
    if (r != rank_ && !has_come(other.value.load(std::memory_order_acquire), number)) await_rank(r, other, number);
  }
}

void RankCounters::await_rank(int rank, Counter& counter, uint32_t number) {
  const auto is_here = [&] { return has_come(counter.value.load(std::memory_order_acquire), number); };
  constexpr int kPauses = 16;
  const auto begin = Clock::now();
  for (auto now = begin; now - begin < busy_wait_; now = Clock::now()) {
    for (int i = 0; i < kPauses; ++i) pause_processor();
    if (is_here()) return;
    if (now - begin > kSpin) ::sched_yield();
  }
  const std::string who = "rank " + std::to_string(rank);
  Clock::duration waited(0);
  for (auto last = Clock::now(); !is_here();) {
    counter.sleepers.fetch_add(1);
    const uint32_t seen = counter.value.load();
    if (!has_come(seen, number) && header().failed.load() == 0) sleep_while(counter.value, seen);
    counter.sleepers.fetch_sub(1);
    pollfd process{processes_.empty() ? -1 : processes_[static_cast<size_t>(rank)].number(), POLLIN, 0};
    const bool has_died = ::poll(&process, 1, 0) > 0;
    const uint32_t failed = header().failed.load();
    if (is_here()) return;  // it came before it ended
    if (has_died) fail("the process of " + who + " has ended");
    if (failed > 0) fail("rank " + std::to_string(failed - 1) + " has given up");
    if (lost_ && lost_()) fail("a rank is lost");
    const auto now = Clock::now();
    waited += std::min<Clock::duration>(kLongestLook, now - last);
    if (waited > timeout_) fail(who + " has not come within " + std::to_string(timeout_.count()) + " ms");
    last = now;
  }
}

void RankCounters::give_up() {
  uint32_t none = 0;
  header().failed.compare_exchange_strong(none, static_cast<uint32_t>(rank_) + 1);
  for (int r = 0; r < world_size_; ++r) {
    wake_sleepers(lane(r).ready.value);
    wake_sleepers(lane(r).done.value);
  }
}

void RankCounters::require_intact() const {
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

void RankCounters::fail(const std::string& why) {
  failure_ = why;
  throw std::runtime_error(why);
}

}  // namespace trainrun
