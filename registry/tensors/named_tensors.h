#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace trainrun {

/// Tensors by name ("0.weight"), in a fixed order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace trainrun
