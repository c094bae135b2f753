#include "runner/distributed/shared_memory.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runner/distributed/shared_segment.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

using namespace trainrun;  // NOLINT(google-build-using-namespace)
using std::chrono::milliseconds;
using trainrun::test::contains;

namespace {

constexpr milliseconds kEnough(60000);

/// What a rank does: returns what is wrong, or nothing.
using RankBody = std::function<std::string(SharedMemory&)>;

/// Processes that are the ranks of one job, forked from this one. What is left of them goes with this.
class ForkedRanks {
 public:
  /// `objecting`: the rank that will not; -1: all will.
  ForkedRanks(int world_size, const RankBody& body, milliseconds timeout = kEnough, int objecting = -1) {
    for (int rank = 0; rank < world_size; ++rank) {
      std::array<int, 2> pipe{};
      REQUIRE(::pipe(pipe.data()) == 0);
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const std::string said = run(rank, world_size, body, timeout, rank == objecting ? "it will not" : "");
        const auto written = ::write(pipe[1], said.data(), said.size());
        ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
      }
      ::close(pipe[1]);
      children_.push_back(child);
      answers_.push_back(pipe[0]);
    }
  }
  ~ForkedRanks() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
    for (const int answer : answers_) ::close(answer);
  }
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  /// What a rank found wrong; waits until it ends.
  std::string said_by(size_t rank) const {
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t count = 0; (count = ::read(answers_[rank], piece.data(), piece.size())) > 0;) {
      text.append(piece.data(), static_cast<size_t>(count));
    }
    return text;
  }

 private:
  std::string run(int rank, int world_size, const RankBody& body, milliseconds timeout, const std::string& objection) {
    try {
      at::set_num_threads(1);
      const auto store = c10::make_intrusive<c10d::FileStore>(folder_ / "store", world_size);
      std::string reason;
      const auto memory = SharedMemory::open(store, rank, world_size, objection, timeout, reason);
      return memory ? body(*memory) : "no memory: " + reason;
    } catch (const std::exception& error) {
      return std::string("thrown: ") + error.what();
    }
  }

  TemporaryFolder folder_;
  std::vector<pid_t> children_;
  std::vector<int> answers_;
};

/// No rank of `world_size` finds anything wrong.
void check_all(int world_size, const RankBody& body) {
  const ForkedRanks ranks(world_size, body);
  for (int rank = 0; rank < world_size; ++rank) CHECK(ranks.said_by(static_cast<size_t>(rank)) == "");
}

/// Those of one rank; every rank can make them.
at::Tensor numbers_of(int rank, int64_t count, at::ScalarType dtype) {
  // Multiples of the golden ratio leave remainders that lie everywhere between 0 and 1, and are quickly made.
  const at::Tensor remainders = at::arange(1, count + 1, at::kDouble).mul_(0.6180339887498949 * (rank + 1)).frac_();
  return remainders.sub_(0.5).mul_(4000).to(dtype);
}

/// Added up in the order of the ranks, 16-bit numbers in float32.
at::Tensor expected_sum(int world_size, int64_t count, at::ScalarType dtype, int divisor) {
  const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
  at::Tensor sum;
  for (int rank = 0; rank < world_size; ++rank) {
    at::Tensor own = numbers_of(rank, count, dtype);
    if (divisor != 1) own.div_(divisor);
    if (is_half) own = own.to(at::kFloat);
    sum = sum.defined() ? sum + own : own;
  }
  return sum.to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt};
constexpr std::array<int64_t, 6> kCounts = {0, 1, 7, 1001, 65536, 300001};  // the last two: a slot, and several

std::string check_sums(SharedMemory& memory, bool in_common) {
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> expected;
  for (const at::ScalarType dtype : kTypes) {
    for (const int64_t size : kCounts) {
      const int divisor = c10::isFloatingType(dtype) && size % 2 == 1 ? memory.world_size() : 1;
      tensors.push_back(numbers_of(memory.rank(), size, dtype));
      expected.push_back(expected_sum(memory.world_size(), size, dtype, divisor));
    }
  }
  if (in_common) {
    const std::string why = memory.move_to_common(tensors);
    if (!why.empty()) return why;
  }
  std::vector<int> ended(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_floating = c10::isFloatingType(tensors[i].scalar_type());
    const int divisor = is_floating && tensors[i].numel() % 2 == 1 ? memory.world_size() : 1;
    memory.start_sum(tensors[i], divisor, [&ended, i] { ++ended[i]; });
  }
  memory.finish_all();
  std::string wrong;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_right = same_bits(tensors[i], expected[i]) && ended[i] == 1;
    if (!is_right)
      wrong += std::string(c10::toString(tensors[i].scalar_type())) + " " + std::to_string(tensors[i].numel()) + "; ";
  }
  return wrong;
}

/// Ranks begin with numbers of their own; each then changes one of the numbers of all.
std::string check_one_memory(SharedMemory& memory) {
  const int rank = memory.rank();
  const at::Tensor empty = at::zeros({0});
  const at::Tensor numbers = numbers_of(rank, 5000, at::kFloat);
  const at::Tensor more = numbers_of(rank, 3, at::kDouble);
  char* place = nullptr;
  std::string reason;
  const auto segment = memory.move_to_one({numbers, empty, more}, 100, place, reason);
  if (!segment) return reason;
  if (!same_bits(numbers, numbers_of(0, 5000, at::kFloat)) || !same_bits(more, numbers_of(0, 3, at::kDouble)))
    return "not rank 0's numbers";
  memory.finish(memory.start_barrier());  // all have looked
  numbers[rank] = 10 + rank;
  place[rank] = static_cast<char>(20 + rank);
  memory.finish(memory.start_barrier());
  for (int r = 0; r < memory.world_size(); ++r) {
    if (numbers[r].item<int>() != 10 + r || place[r] != 20 + r) return "what rank " + std::to_string(r) + " changed";
  }
  return same_bits(numbers.slice(0, 10), numbers_of(0, 5000, at::kFloat).slice(0, 10)) ? "" : "numbers nobody changed";
}

/// What a wait of rank 0 throws.
std::string failure_of(SharedMemory& memory) {
  const at::Tensor numbers = at::zeros({1000});
  const auto sum = [&] { memory.finish(memory.start_sum(numbers)); };
  const std::string first = test::message_of<std::runtime_error>(sum);
  return test::message_of<std::runtime_error>(sum) == first ? first : "another message the second time";
}

size_t count_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

bool maps_ranks_memory() { return contains(content_of("/proc/self/maps"), "trainrun-ranks"); }

}  // namespace

TEST_CASE("ranks add up numbers in the order of the ranks, all to the same bits") {
  for (const int world_size : {2, 3, 4}) {
    if (test::kIsSanitized && world_size != 3) continue;  // the same code takes a while for them
    CAPTURE(world_size);
    check_all(world_size, [](SharedMemory& memory) { return check_sums(memory, false); });
  }
}

TEST_CASE("numbers in the ranks' common memory are added up to the same bits as those that are copied") {
  for (const int world_size : {2, 3, 4}) {
    if (test::kIsSanitized && world_size != 3) continue;  // the same code takes a while for them
    CAPTURE(world_size);
    check_all(world_size, [](SharedMemory& memory) { return check_sums(memory, true); });
  }
}

TEST_CASE("all ranks get the bytes of one, of all, and their part of a sum") {
  for (const int world_size : {2, 3}) {
    CAPTURE(world_size);
    check_all(world_size, [](SharedMemory& memory) -> std::string {
      const int ranks = memory.world_size();
      for (const int64_t size : kCounts) {
        at::Tensor given = numbers_of(memory.rank(), size, at::kFloat);
        memory.finish(memory.start_broadcast(given, ranks - 1));
        if (!same_bits(given, numbers_of(ranks - 1, size, at::kFloat))) return "broadcast of " + std::to_string(size);
        std::vector<at::Tensor> all;
        for (int r = 0; r < ranks; ++r) all.push_back(at::empty_like(given));
        memory.finish(memory.start_all_gather(all, numbers_of(memory.rank(), size, at::kFloat)));
        for (int r = 0; r < ranks; ++r) {
          if (!same_bits(all[static_cast<size_t>(r)], numbers_of(r, size, at::kFloat))) return "all-gather";
        }
        at::Tensor part = at::empty_like(given);
        memory.finish(memory.start_reduce_scatter(part, numbers_of(memory.rank(), ranks * size, at::kFloat)));
        const at::Tensor whole = expected_sum(ranks, ranks * size, at::kFloat, 1);
        if (!same_bits(part, whole.narrow(0, memory.rank() * size, size)))
          return "reduce-scatter of " + std::to_string(size);
        memory.finish(memory.start_barrier());
      }
      return "";
    });
  }
}

TEST_CASE("a rank that is killed is noticed long before the deadline") {
  const ForkedRanks ranks(2, [](SharedMemory& memory) {
    const at::Tensor numbers = at::zeros({1000});
    memory.finish(memory.start_sum(numbers));
    if (memory.rank() == 1) ::raise(SIGKILL);
    return failure_of(memory);
  });
  CHECK(ranks.said_by(0) == "the process of rank 1 has ended");
}

TEST_CASE("a rank that is stopped is noticed at the deadline") {
  const auto body = [](SharedMemory& memory) {
    if (memory.rank() == 1) ::raise(SIGSTOP);
    return failure_of(memory);
  };
  const ForkedRanks ranks(2, body, milliseconds(300));
  CHECK(ranks.said_by(0) == "rank 1 has not come within 300 ms");
}

TEST_CASE("whoever waits for a rank that has given up, or that others know to be lost, does so no longer") {
  const ForkedRanks ranks(2, [](SharedMemory& memory) {
    if (memory.rank() == 0) return failure_of(memory);
    memory.give_up();
    ::pause();
    return std::string();
  });
  CHECK(ranks.said_by(0) == "rank 1 has given up");
  const ForkedRanks others(2, [](SharedMemory& memory) {
    memory.set_lost([] { return true; });
    if (memory.rank() == 1) ::pause();
    return failure_of(memory);
  });
  CHECK(others.said_by(0) == "a rank is lost");
}

TEST_CASE("calls that differ between ranks are noticed") {
  const ForkedRanks ranks(2, [](SharedMemory& memory) {
    return test::message_of<std::runtime_error>(
        [&] { memory.finish(memory.start_sum(at::zeros({10 + memory.rank()}))); });
  });
  CHECK(ranks.said_by(0) == "rank 1 makes another call, of 44 bytes, where this rank makes one of 40");
  CHECK(ranks.said_by(1) == "rank 0 makes another call, of 40 bytes, where this rank makes one of 44");
}

TEST_CASE("no rank uses the common memory if one of them will not, and all know why") {
  for (const int objecting : {0, 2}) {
    const ForkedRanks ranks(3, [](SharedMemory&) { return std::string("opened"); }, kEnough, objecting);
    for (size_t rank = 0; rank < 3; ++rank) {
      CHECK(ranks.said_by(rank) == "no memory: rank " + std::to_string(objecting) + ": it will not");
    }
  }
}

TEST_CASE("tensors in the one memory of all ranks have rank 0's numbers, and all see what each changes") {
  for (const int world_size : {2, 3}) check_all(world_size, check_one_memory);
}

TEST_CASE("memory for all ranks begins where a large page may, and keeps its numbers when it gets large pages") {
  constexpr size_t kLargePage = size_t{2} << 20;
  for (const size_t bytes : {size_t{100}, kLargePage - 1, kLargePage * 3 / 2, kLargePage * 2}) {
    CAPTURE(bytes);
    const SharedSegment segment(bytes);
    CHECK(reinterpret_cast<uintptr_t>(segment.data()) % kLargePage == 0);
    std::memset(segment.data(), 7, bytes / 2);
    segment.use_large_pages();
    const SharedSegment other(segment.place(), bytes);
    CHECK(std::count(other.data(), other.data() + bytes, '\7') == static_cast<std::ptrdiff_t>(bytes / 2));
    other.data()[bytes - 1] = 1;
    CHECK(segment.data()[bytes - 1] == 1);
  }
}

TEST_CASE("memory that all ranks map keeps what each has written there, also once a rank has let it go") {
  constexpr size_t kPart = (size_t{3} << 20) + 64;
  check_all(3, [](SharedMemory& memory) -> std::string {
    std::string reason;
    if (memory.map_common(0, reason) || !contains(reason, "it is empty")) return "nothing was mapped";
    const auto segment = memory.map_common(3 * kPart, reason);
    if (!segment) return reason;
    const auto part = [&](int rank) { return segment->data() + static_cast<size_t>(rank) * kPart; };
    std::memset(part(memory.rank()), 'a' + memory.rank(), kPart);
    memory.finish(memory.start_barrier());
    if (memory.rank() == 0) SharedSegment::use_large_pages(part(0) + 1, part(2));
    for (int round = 0; round < 2; ++round) {
      SharedSegment::let_go(part(0) + round, part(3) - round);
      for (int rank = 0; rank < 3; ++rank) {
        if (std::count(part(rank), part(rank + 1), 'a' + rank) != kPart) return "another's part differs";
      }
    }
    return "";
  });
}

TEST_CASE("nothing is left of the ranks' common memory") {
  const TemporaryFolder folder;
  const auto named_before = std::distance(std::filesystem::directory_iterator("/dev/shm"), {});
  const pid_t child = ::fork();
  if (child == 0) {  // the two ranks are threads here: each has a mapping of its own
    at::set_num_threads(1);
    const size_t before = count_descriptors();
    const auto rank = [&](int number) {
      const auto store = c10::make_intrusive<c10d::FileStore>(folder / "store", 2);
      std::string reason;
      const auto memory = SharedMemory::open(store, number, 2, "", kEnough, reason);
      at::Tensor numbers = at::zeros({5});
      if (!memory || !memory->move_to_common({numbers}).empty() || !maps_ranks_memory()) ::_exit(2);
      memory->finish(memory->start_sum(numbers));
    };
    std::thread other([&] { rank(1); });
    rank(0);
    other.join();
    ::_exit(count_descriptors() == before && !maps_ranks_memory() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(std::distance(std::filesystem::directory_iterator("/dev/shm"), {}) == named_before);
}
