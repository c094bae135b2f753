#pragma once

#include <cstdint>

#include "registry/kernels/simd.h"

// The loop of total_norm.h. Declarations only (see README.md).

namespace trainrun::kernels {

TRAINRUN_ON_EACH_PATH(double sum_of_squares(const float* from, int64_t count))

}  // namespace trainrun::kernels
