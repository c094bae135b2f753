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

/// c10d::ProcessGroup's gathering of `input` from all ranks into one tensor: _allgather_base in 2.11, where all_gather_single
/// is not there yet; in 2.15 the former is deprecated.
template <typename Group>
auto all_gather_single(Group& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.all_gather_single(output, input); }) {
    return group.all_gather_single(output, input);
  } else {
    return group._allgather_base(output, input);
  }
}

/// Its sum over the ranks of which each gets a part: _reduce_scatter_base in 2.11, reduce_scatter_single in 2.15.
template <typename Group>
auto reduce_scatter_single(Group& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.reduce_scatter_single(output, input); }) {
    return group.reduce_scatter_single(output, input);
  } else {
    return group._reduce_scatter_base(output, input);
  }
}

}  // namespace trainrun
