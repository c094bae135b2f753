#pragma once

#include <cstddef>

namespace trainrun {

/// From now on LibTorch's CPU tensors of `least_bytes` and more lie in pages beside the heap that are used again when
/// they are free (page_pool.h). On the heap, something small settles in the hole that a large tensor leaves, the next one
/// no longer fits into it, and the heap grows with every batch. Pages in use and free ones together take hardly more than
/// those in use ever did at once. For the rest of the process; called again, it can only lower `least_bytes`.
void reuse_large_blocks(size_t least_bytes);

/// Of which size tensors are large. Smaller ones fit into the heap that the program has from its start.
constexpr size_t kLargeTensor = size_t{8} << 20;
/// The same where models are sharded: their weights come and go with each layer.
constexpr size_t kLargeShardedTensor = size_t{1} << 20;

/// Gives back to the system what is free, of those pages and of the heap: after whole models were built, loaded or
/// saved.
void return_free_memory();

}  // namespace trainrun
