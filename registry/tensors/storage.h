#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

// A tensor's memory can be released and taken again while its views stay valid: they refer to the storage, not to its
// memory.

/// Allocates uninitialized memory for a tensor that covers its whole storage.
inline void take_memory(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = tensor.nbytes();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

/// Frees the memory; nothing may read the tensor or its views until `take_memory`.
inline void give_memory_back(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

}  // namespace trainrun
