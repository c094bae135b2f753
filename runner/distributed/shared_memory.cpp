#include "runner/distributed/shared_memory.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "registry/kernels/rank_sums.h"

namespace trainrun {
namespace {

using Event = RankCounters::Event;

constexpr uint32_t kDepth = 4;                    // pieces on the way
constexpr size_t kSlotBytes = size_t{256} << 10;  // so much of a piece, half of what is left of a second cache
constexpr size_t kMemoryPage = 4096;
constexpr size_t kLine = 64;                // of a cache
constexpr uint64_t kInSlot = ~uint64_t{0};  // not in the common memory

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Where the calls of all ranks begin, and where the slots do.
size_t calls_at(int world_size) { return rounded_up(RankCounters::bytes_for(world_size), kLine); }
size_t slots_at(int world_size, size_t call_bytes) {
  return rounded_up(calls_at(world_size) + static_cast<size_t>(world_size) * kDepth * call_bytes, kMemoryPage);
}

char* data_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

}  // namespace

enum class SharedMemory::Kind : uint32_t { kSum, kBroadcast, kAllGather, kReduceScatter };

/// What a rank says of a piece: the same on all ranks, but for where it lies.
struct alignas(kLine) SharedMemory::Call {
  uint64_t offset;  // in its part of the common memory, or kInSlot
  uint64_t bytes;
  uint32_t kind;
  uint32_t dtype;
  int32_t root;
};

/// A part of a call, as large as a slot at most; what lies in the common memory is one piece.
struct SharedMemory::Piece {
  Kind kind = Kind::kSum;
  at::ScalarType dtype = at::ScalarType::Byte;
  int root = 0;
  double divisor = 1;
  const char* input = nullptr;
  size_t stride = 0;  // of a reduce-scatter: between the ranks' parts of the input
  size_t bytes = 0;   // of one rank's part
  uint64_t offset = kInSlot;
  std::vector<char*> outputs;  // one, or of an all-gather one for each rank
  uint32_t number = 0;
  std::vector<at::Tensor> keeps;
  std::function<void()> ended;
};

SharedMemory::Call& SharedMemory::call(int rank, uint32_t number) const {
  auto* calls = reinterpret_cast<Call*>(segment_->data() + calls_at(world_size_));
  return *(calls + static_cast<size_t>(rank) * kDepth + number % kDepth);
}

char* SharedMemory::slot(int rank, uint32_t number) const {
  const size_t index = static_cast<size_t>(rank) * kDepth + number % kDepth;
  return segment_->data() + slots_at(world_size_, sizeof(Call)) + index * kSlotBytes;
}

std::shared_ptr<SharedMemory> SharedMemory::open(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                                 std::string objection, Duration timeout, std::string& reason) {
  if (objection.empty() && world_size > kMostRanks) {
    objection = "there are more than " + std::to_string(kMostRanks) + " ranks";
  }
  const size_t bytes = slots_at(world_size, sizeof(Call)) + static_cast<size_t>(world_size) * kDepth * kSlotBytes;
  CommonSegment common = open_common(store, "memory", rank, world_size, bytes, objection, timeout);
  reason = common.reason;
  if (!common.segment) return nullptr;
  std::shared_ptr<SharedMemory> memory(
      new SharedMemory(store, rank, world_size, std::move(common.segment), timeout));  // NOLINT: a private constructor
  memory->finish(memory->start_barrier());  // all have said which processes they are
  memory->counters_.watch_processes();
  return memory;
}

SharedMemory::SharedMemory(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                           std::shared_ptr<SharedSegment> segment, Duration timeout)
    : store_(std::move(store)),
      rank_(rank),
      world_size_(world_size),
      segment_(std::move(segment)),
      counters_(segment_->data(), rank, world_size, timeout) {}

SharedMemory::~SharedMemory() = default;

bool SharedMemory::adds(at::ScalarType dtype) { return kernels::number_type(dtype).has_value(); }

uint32_t SharedMemory::start_sum(const at::Tensor& tensor, double divisor, std::function<void()> ended) {
  Piece piece;
  piece.dtype = tensor.scalar_type();
  piece.divisor = divisor;
  piece.input = data_of(tensor);
  piece.bytes = tensor.nbytes();
  piece.outputs = {data_of(tensor)};
  piece.keeps = {tensor};
  if (!find_in_common(piece)) return start_pieces(piece, kSlotBytes, ended);
  piece.ended = std::move(ended);
  publish(std::move(piece));
  return number_;
}

uint32_t SharedMemory::start_broadcast(const at::Tensor& tensor, int root) {
  Piece piece;
  piece.kind = Kind::kBroadcast;
  piece.root = root;
  piece.dtype = tensor.scalar_type();
  piece.input = data_of(tensor);
  piece.bytes = tensor.nbytes();
  piece.outputs = {data_of(tensor)};
  piece.keeps = {tensor};
  return start_pieces(piece, kSlotBytes, {});
}

uint32_t SharedMemory::start_all_gather(const std::vector<at::Tensor>& whole, const at::Tensor& part) {
  Piece piece;
  piece.kind = Kind::kAllGather;
  piece.dtype = part.scalar_type();
  piece.input = data_of(part);
  piece.bytes = part.nbytes();
  for (const at::Tensor& tensor : whole) piece.outputs.push_back(data_of(tensor));
  piece.keeps = whole;
  piece.keeps.push_back(part);
  return start_pieces(piece, kSlotBytes, {});
}

uint32_t SharedMemory::start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole) {
  Piece piece;
  piece.kind = Kind::kReduceScatter;
  piece.dtype = part.scalar_type();
  piece.input = data_of(whole);
  piece.bytes = part.nbytes();
  piece.stride = part.nbytes();
  piece.outputs = {data_of(part)};
  piece.keeps = {part, whole};
  return start_pieces(piece, kSlotBytes / static_cast<size_t>(world_size_) / kLine * kLine, {});
}

uint32_t SharedMemory::start_barrier() { return start_pieces({}, kSlotBytes, {}); }

uint32_t SharedMemory::start_pieces(const Piece& whole, size_t piece_bytes, const std::function<void()>& ended) {
  for (size_t at = 0; at == 0 || at < whole.bytes; at += piece_bytes) {
    Piece piece = whole;
    piece.bytes = std::min(piece_bytes, whole.bytes - at);
    if (piece.input) piece.input += at;
    for (char*& output : piece.outputs) output += piece.bytes > 0 ? at : 0;
    if (at + piece.bytes == whole.bytes) piece.ended = ended;
    publish(std::move(piece));
  }
  return number_;
}

bool SharedMemory::find_in_common(Piece& piece) const {
  if (!common_ || piece.bytes == 0) return false;
  const char* begin = common_->data() + static_cast<size_t>(rank_) * common_bytes_;
  if (piece.input < begin || piece.input + piece.bytes > begin + common_bytes_) return false;
  piece.offset = static_cast<uint64_t>(piece.input - begin);
  return true;
}

void SharedMemory::publish(Piece piece) {
  while (pending_.size() >= kDepth) finish_first();
  piece.number = ++number_;
  counters_.await(Event::kDone, piece.number - kDepth);  // nobody reads this slot any more
  call(rank_, piece.number) = {piece.offset, piece.bytes, static_cast<uint32_t>(piece.kind),
                               static_cast<uint32_t>(piece.dtype), piece.root};
  if (piece.offset == kInSlot) fill_slot(piece);
  counters_.set(Event::kReady, piece.number);
  pending_.push_back(std::move(piece));
}

void SharedMemory::fill_slot(const Piece& piece) {
  if (piece.bytes == 0 || (piece.kind == Kind::kBroadcast && piece.root != rank_)) return;
  char* own = slot(rank_, piece.number);
  const int parts = piece.kind == Kind::kReduceScatter ? world_size_ : 1;
  for (int r = 0; r < parts; ++r) {
    if (parts > 1 && r == rank_) continue;  // nobody else reads it
    std::memcpy(own + static_cast<size_t>(r) * piece.bytes, piece.input + static_cast<size_t>(r) * piece.stride,
                piece.bytes);
  }
}

void SharedMemory::finish(uint32_t number) {
  while (!pending_.empty() && RankCounters::has_come(number, pending_.front().number)) finish_first();
}

void SharedMemory::finish_all() { finish(number_); }

void SharedMemory::finish_first() {
  const Piece piece = std::move(pending_.front());
  pending_.pop_front();
  counters_.await(Event::kReady, piece.number);
  require_same_call(piece);
  if (piece.offset == kInSlot) {
    if (piece.bytes > 0) compute(piece);
    counters_.set(Event::kDone, piece.number);
  } else {
    compute_in_common(piece);
    counters_.set(Event::kDone, piece.number);
    counters_.await(Event::kDone, piece.number);  // each has written a slice of all
  }
  if (piece.ended) piece.ended();
}

void SharedMemory::require_same_call(const Piece& piece) {
  const auto same = [](const Call& a, const Call& b) {
    return std::tie(a.offset, a.bytes, a.kind, a.dtype, a.root) == std::tie(b.offset, b.bytes, b.kind, b.dtype, b.root);
  };
  const Call& own = call(rank_, piece.number);
  for (int r = 0; r < world_size_; ++r) {
    const Call& other = call(r, piece.number);
    if (same(other, own)) continue;
    counters_.fail("rank " + std::to_string(r) + " makes another call, of " + std::to_string(other.bytes) +
                   " bytes, where this rank makes one of " + std::to_string(own.bytes));
  }
}

void SharedMemory::compute(const Piece& piece) {
  if (piece.kind == Kind::kBroadcast) {
    if (piece.root != rank_) std::memcpy(piece.outputs[0], slot(piece.root, piece.number), piece.bytes);
    return;
  }
  if (piece.kind == Kind::kAllGather) {
    for (int r = 0; r < world_size_; ++r) {
      std::memcpy(piece.outputs[static_cast<size_t>(r)], slot(r, piece.number), piece.bytes);
    }
    return;
  }
  const size_t begin = piece.kind == Kind::kReduceScatter ? static_cast<size_t>(rank_) * piece.bytes : 0;
  std::array<const void*, kMostRanks> from{};
  for (int r = 0; r < world_size_; ++r) from[static_cast<size_t>(r)] = slot(r, piece.number) + begin;
  if (piece.kind == Kind::kReduceScatter) {
    from[static_cast<size_t>(rank_)] = piece.input + static_cast<size_t>(rank_) * piece.stride;
  }
  std::array<void*, 1> to = {piece.outputs[0]};
  const auto count = static_cast<int64_t>(piece.bytes / c10::elementSize(piece.dtype));
  kernels::add_ranks(*kernels::number_type(piece.dtype), {from.data(), world_size_, to.data(), 1, count},
                     piece.divisor);
}

/// This rank adds up its slice for all.
void SharedMemory::compute_in_common(const Piece& piece) {
  const size_t lines = rounded_up(piece.bytes, kLine) / kLine;
  const auto border = [&](int rank) {
    return std::min(piece.bytes, lines * static_cast<size_t>(rank) / static_cast<size_t>(world_size_) * kLine);
  };
  std::array<void*, kMostRanks> all{};
  for (int r = 0; r < world_size_; ++r) {
    all[static_cast<size_t>(r)] =
        common_->data() + static_cast<size_t>(r) * common_bytes_ + piece.offset + border(rank_);
  }
  const auto count = static_cast<int64_t>((border(rank_ + 1) - border(rank_)) / c10::elementSize(piece.dtype));
  kernels::add_ranks(*kernels::number_type(piece.dtype), {all.data(), world_size_, all.data(), world_size_, count},
                     piece.divisor);
}

CommonSegment SharedMemory::open_more(size_t bytes, const std::string& objection) {
  return open_common(store_, "memory/" + std::to_string(num_opened_++), rank_, world_size_, bytes, objection,
                     counters_.timeout());
}

std::shared_ptr<SharedSegment> SharedMemory::map_common(size_t bytes, std::string& reason) {
  CommonSegment opened = open_more(bytes, bytes == 0 ? "it is empty" : "");
  reason = opened.reason;
  return opened.segment;
}

std::string SharedMemory::move_to_common(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += rounded_up(tensor.storage().nbytes(), kMemoryPage);
  const size_t of_all = bytes * static_cast<size_t>(world_size_);
  CommonSegment opened = open_more(of_all, common_ ? "there are tensors in it already" : "");
  if (!opened.segment) return opened.reason;
  common_ = std::move(opened.segment);
  common_bytes_ = bytes;
  char* place = common_->data() + static_cast<size_t>(rank_) * bytes;
  for (const at::Tensor& tensor : tensors) {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (storage->nbytes() > 0) std::memcpy(place, storage->data(), storage->nbytes());
    use_segment(*storage, place, common_);
    place += rounded_up(storage->nbytes(), kMemoryPage);
  }
  finish(start_barrier());
  common_->use_large_pages();
  return "";
}

std::shared_ptr<SharedSegment> SharedMemory::move_to_one(const std::vector<at::Tensor>& tensors, size_t more,
                                                         char*& place, std::string& reason) {
  size_t bytes = rounded_up(more, kMemoryPage);
  for (const at::Tensor& tensor : tensors) bytes += rounded_up(tensor.storage().nbytes(), kMemoryPage);
  std::shared_ptr<SharedSegment> segment = map_common(bytes, reason);
  if (!segment) return nullptr;
  char* next = segment->data() + rounded_up(more, kMemoryPage);
  for (const at::Tensor& tensor : tensors) {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (rank_ == 0 && storage->nbytes() > 0) std::memcpy(next, storage->data(), storage->nbytes());
    use_segment(*storage, next, segment);
    next += rounded_up(storage->nbytes(), kMemoryPage);
  }
  finish(start_barrier());  // rank 0's values are there
  segment->use_large_pages();
  place = segment->data();
  return segment;
}

}  // namespace trainrun
