#pragma once

#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of silu_product.h, on bare memory. Declarations only: sources that are compiled for each kind of
// instructions include this header (see README.md).

namespace trainrun::kernels {

/// The numbers [begin, end) of tensors of equal sizes without gaps, all of float32 or all of bfloat16.
struct SiluProductRange {
  int64_t begin;
  int64_t end;
  bool is_bfloat16;
};

/// y = SiLU(gate) * up.
TRAINRUN_ON_EACH_PATH(void silu_product(const SiluProductRange& range, const void* gate, const void* up, void* y))
/// The gradients of both from that of y.
TRAINRUN_ON_EACH_PATH(void silu_product_back(const SiluProductRange& range, const void* gate, const void* up,
                                             const void* grad_y, void* grad_gate, void* grad_up))

}  // namespace trainrun::kernels
