#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace trainrun {

/// Pushes what an operation gives for `args`, as tensors on the meta device; checks what the operation would check.
using ShapeFunction = void (*)(const std::vector<c10::IValue>& args, torch::jit::Stack* stack);

/// That of an operation ("aten::convolution") which has no meta kernel in C++ and would cost time or memory on zeros;
/// null for other operations.
ShapeFunction find_shape_function(const std::string& operation);

/// Adds to what ShapeMode::flops gives: the multiplications and additions of matrix products and convolutions.
void count_flops(int64_t flops);
int64_t flops_counted();

/// The product of all sizes.
int64_t num_elements(at::IntArrayRef sizes);

}  // namespace trainrun
