#include "runner/process/block_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace trainrun {
namespace {

constexpr size_t kMostWaste = 4;  // a block may be larger than asked for by one part in so many
constexpr size_t kSlack = 16;     // blocks may take more than were ever in use at once by one part in so many

class BlockAllocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes < least_bytes_) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* memory = take(bytes);
    return {memory, memory, &release, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  /// Never destroyed: tensors of static storage may outlive any order of destructors.
  static BlockAllocator& instance() {
    static auto* allocator = new BlockAllocator;  // NOLINT(cppcoreguidelines-owning-memory)
    return *allocator;
  }

  void lower_least_bytes(size_t bytes) { least_bytes_ = std::min<size_t>(least_bytes_, bytes); }

  void return_free() {
    const std::lock_guard lock(mutex_);
    while (!free_.empty()) unmap_oldest();
    most_used_ = used_;
  }

 private:
  struct Block {
    void* memory;
    size_t bytes;
  };

  static void release(void* memory) { instance().give(memory); }

  /// The smallest free block that will do, among several the newest, whose pages are still in the caches; else a new
  /// one.
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes < bytes || it->bytes > bytes + bytes / kMostWaste) continue;
      if (best == free_.end() || it->bytes <= best->bytes) best = it;
    }
    Block block{};
    if (best != free_.end()) {
      block = *best;
      free_.erase(best);
      free_bytes_ -= block.bytes;
    } else {
      block = map(bytes);
    }
    used_ += block.bytes;
    most_used_ = std::max(most_used_, used_);
    in_use_.emplace(block.memory, block.bytes);
    return block.memory;
  }

  Block map(size_t bytes) {
    const size_t most = std::max(most_used_, used_ + bytes);
    while (!free_.empty() && used_ + free_bytes_ + bytes > most + most / kSlack) unmap_oldest();
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    if (bytes >= kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);  // else each 4 KiB of it are a fault
    return {memory, bytes};
  }

  void unmap_oldest() {
    free_bytes_ -= free_.front().bytes;
    ::munmap(free_.front().memory, free_.front().bytes);
    free_.pop_front();
  }

  void give(void* memory) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = in_use_.find(memory); found != in_use_.end()) {
        used_ -= found->second;
        free_bytes_ += found->second;
        free_.push_back({memory, found->second});
        in_use_.erase(found);
        return;
      }
    }
    c10::free_cpu(memory);  // a small one
  }

  std::atomic<size_t> least_bytes_ = SIZE_MAX;
  std::mutex mutex_;
  std::deque<Block> free_;  // the newest last
  std::unordered_map<void*, size_t> in_use_;
  size_t free_bytes_ = 0;
  size_t used_ = 0;
  size_t most_used_ = 0;
};

}  // namespace

void reuse_large_blocks(size_t least_bytes) {
  BlockAllocator::instance().lower_least_bytes(least_bytes);
  c10::SetCPUAllocator(&BlockAllocator::instance(), /*priority=*/1);
}

void return_free_memory() {
  BlockAllocator::instance().return_free();
  malloc_trim(0);
}

}  // namespace trainrun
