#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "registry/kinds/layer.h"

namespace trainrun {

/// The 2-norm of each tensor. [n] float64, where the tensors are, so that the host does not wait for a GPU.
at::Tensor norms_of(const Tensors& tensors);

/// `values` as a float64 tensor on the device of `neighbour`.
at::Tensor numbers_beside(const at::Tensor& neighbour, const std::vector<double>& values);

/// `tensors[i]` times `rates[i]` ([n] float64, on their device).
Tensors scaled(const Tensors& tensors, const at::Tensor& rates);

}  // namespace trainrun
