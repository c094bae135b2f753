#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "registry/kernels/cpu_path.h"

namespace trainrun::kernels {

/// The norm of all numbers of the tensors, [] float32, as torch.nn.utils.get_total_norm gives it: the norm of the tensors'
/// norms, of which there is at least one. Plain CPU tensors of float32 without gaps are read once, on all threads, and
/// summed in blocks that do not depend on their number, in float64 from some thousand numbers on; others by ATen, which
/// makes an operation of each. A norm may differ from ATen's by rounding.
at::Tensor total_norm(const std::vector<at::Tensor>& tensors, CpuPath path = best_cpu_path());

}  // namespace trainrun::kernels
