#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

/// What the releases of LibTorch that trainrun is built with (the list is in CMakeLists.txt) say differently. The rest of the
/// source is the same for all of them.
namespace trainrun {

/// What owns a node of the graph of gradients: std::shared_ptr in 2.11, c10::intrusive_ptr in 2.15.
using GradientNode = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// The name of a dtype, as PyTorch prints it: LibTorch returns a std::string in 2.11, a std::string_view in 2.15.
inline std::string dtype_name(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

}  // namespace trainrun
