#pragma once

#include <ATen/ops/adaptive_avg_pool1d.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>

#include "registry/layers/sizes.h"

namespace trainrun {

/// adaptive_avg_pool<kDims>(input, sizes): a layer, and how Interpolate does `mode: area`.
TRAINRUN_OP_OF_DIMS(adaptive_avg_pool, )

}  // namespace trainrun
