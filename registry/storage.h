#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

// A tensor's memory comes and goes while its views stay what they are: they keep the storage, not what it holds.

/// Allocates, not initialized, for a tensor that covers its whole storage.
inline void take_memory(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = tensor.nbytes();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

/// Frees; nothing may read the tensor or its views until `take_memory`.
inline void give_memory_back(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

}  // namespace trainrun
