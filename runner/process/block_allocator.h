#pragma once

namespace trainrun {

/// From now on LibTorch's large CPU tensors (1 MiB and more) lie in blocks beside the heap that are used again when
/// they are free: nothing small settles in the holes they leave, and the kernel need not map and zero them anew at each
/// step. Blocks in use and free ones together take hardly more than those in use ever did at once. For the rest of the
/// process; calling it again changes nothing.
void reuse_large_blocks();

/// Gives back to the system what is free, of those blocks and of the heap: after whole models were built, loaded or
/// saved.
void return_free_memory();

}  // namespace trainrun
