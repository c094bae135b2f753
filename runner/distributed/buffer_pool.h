#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace trainrun {

/// Memory for tensors that are large and short-lived: what is gathered layer by layer. Taken from the system beside the
/// heap, where small long-lived blocks would settle in the holes between, and buffers are kept for what is next, of
/// nearly its size. On devices other than the CPU, whose allocators keep blocks by size, those are used.
class BufferPool {
 public:
  BufferPool();
  /// Gives `tensor`, which covers its whole storage, memory that is not initialized; it goes back to the pool when the
  /// storage lets go of it (`give_memory_back`, or the tensor's end).
  void take_memory(const at::Tensor& tensor) const;
  /// A tensor [size], not initialized.
  at::Tensor empty(int64_t size, const at::TensorOptions& options) const;

 private:
  struct Free;
  struct Buffer;
  std::shared_ptr<Free> free_;
};

}  // namespace trainrun
