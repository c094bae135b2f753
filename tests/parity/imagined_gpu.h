#pragma once

#include <cstdint>

namespace trainrun {

/// Has LibTorch believe in a GPU, cuda:0. Its memory is the computer's and its operations are the CPU's, but as on a
/// real one they refuse tensors of the CPU beside their own, numbers (tensors of no dimension) excepted. So what is
/// made on the wrong device shows where there is no GPU. Operations that LibTorch has for CUDA alone are missing:
/// depthwise, transposed and 3-D convolutions, LSTM and GRU, CTC. Once, before the first operation, and without
/// libtorch_cuda.
void imagine_gpu();

/// How many times the host has waited for that GPU so far: a number read (`_local_scalar_dense`), or a tensor copied to
/// the CPU and not asynchronously.
int64_t waits_for_gpu();

/// How many bytes of the CPU's tensors were copied to that GPU so far.
int64_t bytes_sent_to_gpu();

}  // namespace trainrun
