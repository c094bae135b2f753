#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/panel.h"
#include "registry/kernels/simd.h"

// The loops of linear.h, on bare memory. Declarations only: sources that are compiled for each kind of instructions
// include this header (see README.md).

namespace trainrun::kernels {

/// x [rows][in] times the transpose of w [out][in]; neither has gaps.
struct FewRows {
  int64_t rows, in, out;
  int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
};

/// The features [begin, end) of x as columns: to[panel][feature][kPanel], zeros where there is no row.
TRAINRUN_ON_EACH_PATH(void few_rows_transpose(const FewRows& shape, const float* x, int64_t begin, int64_t end,
                                              float* to))
/// y[row][begin, end): of the rows of w, and of x as `few_rows_transpose` gives it. `bias` may be null. `scratch` holds
/// (end - begin) * kPanel floats.
TRAINRUN_ON_EACH_PATH(void few_rows_product(const FewRows& shape, const float* columns, const float* w,
                                            const float* bias, int64_t begin, int64_t end, float* y, float* scratch))

}  // namespace trainrun::kernels
