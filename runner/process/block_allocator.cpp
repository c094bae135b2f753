#include "runner/process/block_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "runner/process/page_pool.h"

namespace trainrun {
namespace {

constexpr size_t kSmallPage = size_t{64} << 10;
constexpr size_t kLeastOfHugePages = size_t{8} << 20;  // less than a quarter of such a block is unused

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
    huge_.return_free();
    small_.return_free();
  }

 private:
  static void release(void* memory) { instance().give(memory); }

  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    return (bytes >= kLeastOfHugePages ? huge_ : small_).take(bytes);
  }
  void give(void* memory) {
    {
      const std::lock_guard lock(mutex_);
      if (huge_.give(memory) || small_.give(memory)) return;
    }
    c10::free_cpu(memory);  // a small one, of the heap
  }

  std::atomic<size_t> least_bytes_ = SIZE_MAX;
  std::mutex mutex_;
  PagePool huge_{kHugePage}, small_{kSmallPage};
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
