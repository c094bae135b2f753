#include "runner/distributed/buffer_pool.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>

#include "registry/tensors/storage.h"
#include "runner/process/block_allocator.h"

namespace trainrun {
namespace {

constexpr size_t kLeastBufferBytes = size_t{1} << 20;  // smaller ones fit anywhere on the heap
constexpr size_t kMostBufferWaste = 4;                 // a buffer may be larger than asked for by one part in so many

}  // namespace

/// The buffers that nobody uses, the newest last. With those in use they never take more memory than the most that was in
/// use at a time.
struct BufferPool::Free {
  std::mutex mutex;
  std::deque<std::pair<void*, size_t>> buffers;
  size_t free_bytes = 0;
  size_t used_bytes = 0;
  size_t most_used_bytes = 0;

  ~Free() {
    for (const auto& [memory, bytes] : buffers) ::munmap(memory, bytes);
  }
  /// At least `bytes`: the smallest that will do, among several the newest, whose pages are still in the caches.
  std::pair<void*, size_t> take(size_t bytes) {
    const std::lock_guard lock(mutex);
    auto best = buffers.end();
    for (auto it = buffers.begin(); it != buffers.end(); ++it) {
      if (it->second < bytes || it->second > bytes + bytes / kMostBufferWaste) continue;
      if (best == buffers.end() || it->second <= best->second) best = it;
    }
    if (best != buffers.end()) {
      const auto found = *best;
      buffers.erase(best);
      free_bytes -= found.second;
      count_use(found.second);
      return found;
    }
    const size_t most = std::max(most_used_bytes, used_bytes + bytes);
    while (!buffers.empty() && used_bytes + free_bytes + bytes > most) drop_oldest();
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    count_use(bytes);
    if (bytes >= kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);  // else each 4 KiB of it are a fault
    return {memory, bytes};
  }
  void give(void* memory, size_t bytes) {
    const std::lock_guard lock(mutex);
    buffers.emplace_back(memory, bytes);
    free_bytes += bytes;
    used_bytes -= bytes;
  }

 private:
  void count_use(size_t bytes) {
    used_bytes += bytes;
    most_used_bytes = std::max(most_used_bytes, used_bytes);
  }
  void drop_oldest() {
    ::munmap(buffers.front().first, buffers.front().second);
    free_bytes -= buffers.front().second;
    buffers.pop_front();
  }
};

/// One buffer in use; whoever has it may outlive the pool.
struct BufferPool::Buffer {
  std::shared_ptr<Free> home;
  void* memory;
  size_t bytes;
};

BufferPool::BufferPool() : free_(std::make_shared<Free>()) {}

void BufferPool::take_memory(const at::Tensor& tensor) const {
  const size_t bytes = tensor.nbytes();
  if (!tensor.is_cpu() || bytes < kLeastBufferBytes) return trainrun::take_memory(tensor);
  const auto [memory, capacity] = free_->take(bytes);
  auto* buffer = new Buffer{free_, memory, capacity};  // NOLINT(cppcoreguidelines-owning-memory): by DataPtr
  const auto release = [](void* context) {
    const std::unique_ptr<Buffer> own(static_cast<Buffer*>(context));
    own->home->give(own->memory, own->bytes);
  };
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(buffer->memory, buffer, release, tensor.device()));
  storage->set_nbytes(bytes);
}

at::Tensor BufferPool::empty(int64_t size, const at::TensorOptions& options) const {
  at::Tensor tensor = at::empty({0}, options);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({size});
  take_memory(tensor);
  return tensor;
}

}  // namespace trainrun
