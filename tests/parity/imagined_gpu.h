#pragma once

namespace trainrun {

/// Has LibTorch believe in a GPU, cuda:0. Its memory is the computer's and its operations are the CPU's, but as on a
/// real one they refuse tensors of the CPU beside their own, numbers (tensors of no dimension) excepted. So what is
/// made on the wrong device shows where there is no GPU. Operations that LibTorch has for CUDA alone are missing:
/// depthwise, transposed and 3-D convolutions, LSTM and GRU, CTC. Once, before the first operation, and without
/// libtorch_cuda.
void imagine_gpu();

}  // namespace trainrun
