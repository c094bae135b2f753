#pragma once

#include <ATen/core/Tensor.h>

namespace trainrun {

/// Whether float32 holds these numbers (float64) without rounding one. Where it does not, `get` gives float64 for what
/// `info` calls float32, so that transforms may still scale it; what they leave so is rounded last.
bool fits_float32(const at::Tensor& numbers);

}  // namespace trainrun
