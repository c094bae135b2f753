#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/distributed/rank_counters.h"
#include "runner/distributed/shared_segment.h"

namespace trainrun {

/// Collectives between the ranks of one machine, through memory that all of them map. Every rank makes the same calls in
/// the same order, on one thread at a time. Sums are added up in the order of the ranks, so all get the same bits.
///
/// A call that is started only says that this rank's numbers are there; `finish` computes. So whoever is early does not
/// wait. Tensors are CPU tensors, contiguous, and not to be touched in between. Numbers lie in the common memory
/// (`move_to_common`) or are copied through it, piece by piece.
///
/// A wait that fails (RankCounters) throws std::runtime_error, as do calls that differ between ranks and all calls after.
class SharedMemory {
 public:
  using Duration = std::chrono::milliseconds;
  static constexpr int kMostRanks = 64;

  /// Opens it with the other ranks; null, with the reason, where one of them cannot. `objection`: why this rank will
  /// not, or empty. Throws what the store throws.
  static std::shared_ptr<SharedMemory> open(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                            std::string objection, Duration timeout, std::string& reason);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  void set_timeout(Duration timeout) { counters_.set_timeout(timeout); }
  /// Asked while a wait goes on: whether it is known from elsewhere that a rank is lost.
  void set_lost(std::function<bool()> lost) { counters_.set_lost(std::move(lost)); }

  /// Whether numbers of this type are added here.
  static bool adds(at::ScalarType dtype);
  /// Each starts a call and returns its number. `ended` is called when its result is there.
  uint32_t start_sum(const at::Tensor& tensor, double divisor = 1, std::function<void()> ended = {});
  uint32_t start_broadcast(const at::Tensor& tensor, int root);
  /// `whole`: where each rank's part goes.
  uint32_t start_all_gather(const std::vector<at::Tensor>& whole, const at::Tensor& part);
  /// `whole` [world_size * n] is summed, `part` [n] gets this rank's part of it.
  uint32_t start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole);
  uint32_t start_barrier();
  /// Ends the call of that number, and all before it.
  void finish(uint32_t number);
  void finish_all();

  /// Moves the tensors' storages, of the same sizes on all ranks, to memory in which they are summed without a copy. All
  /// ranks call it. Returns why it could not be done, or nothing.
  std::string move_to_common(const std::vector<at::Tensor>& tensors);

  /// Moves the tensors' storages, the same on all ranks, to memory that is one for all of them, with rank 0's values; all
  /// ranks call it. Returns the memory, with `more` bytes besides, which begin at `place`; or null, and why.
  std::shared_ptr<SharedSegment> move_to_one(const std::vector<at::Tensor>& tensors, size_t more, char*& place,
                                             std::string& reason);

  /// Zeros that all ranks map, to be used as they agree; null, and why. All ranks call it.
  std::shared_ptr<SharedSegment> map_common(size_t bytes, std::string& reason);

  /// This rank has failed: whoever waits for it is told.
  void give_up() { counters_.give_up(); }

 private:
  enum class Kind : uint32_t;
  struct Call;
  struct Piece;

  SharedMemory(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::shared_ptr<SharedSegment> segment,
               Duration timeout);
  Call& call(int rank, uint32_t number) const;
  char* slot(int rank, uint32_t number) const;
  uint32_t start_pieces(const Piece& whole, size_t piece_bytes, const std::function<void()>& ended);
  bool find_in_common(Piece& piece) const;
  void publish(Piece piece);
  void fill_slot(const Piece& piece);
  void finish_first();
  void require_same_call(const Piece& piece);
  void compute(const Piece& piece);
  void compute_in_common(const Piece& piece);
  CommonSegment open_more(size_t bytes, const std::string& objection);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  std::shared_ptr<SharedSegment> segment_;
  RankCounters counters_;
  std::shared_ptr<SharedSegment> common_;  // tensors that were moved; null: none
  size_t common_bytes_ = 0;                // of each rank
  std::deque<Piece> pending_;
  uint32_t number_ = 0;
  int num_opened_ = 0;  // of further segments
};

}  // namespace trainrun
