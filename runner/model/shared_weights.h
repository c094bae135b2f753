#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// Throws Error, which begins with `origin`, where `given` has two different values for one tensor of `own` that layers
/// share: which of them is meant is not known.
void check_shared_weights(const std::string& origin, const std::map<std::string, at::Tensor>& given,
                          const NamedTensors& own);

}  // namespace trainrun
