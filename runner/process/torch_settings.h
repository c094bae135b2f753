#pragma once

#include <cstdint>

namespace trainrun {

/// LibTorch's settings for the whole process, which a recipe decides.

/// Has LibTorch and cuBLAS choose algorithms that add up in one order.
void compute_deterministically();
/// How many threads an operation of the CPU gets.
void set_threads_of_operations(int64_t number);
/// Whether GPUs may round float32 to TF32 in matrix products and convolutions.
void allow_tf32(bool allowed);

}  // namespace trainrun
