#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of sparse_product.h, on bare memory. Declarations only: sources that are compiled for each kind of
// instructions include this header (see README.md).

namespace trainrun::kernels {

/// left [rows, depth] times right [depth, columns], whose rows lie one after the other, as those of the product do. Number
/// (i, k) of `left` is left[i * left_row + k * left_column].
struct SparseProduct {
  const float* left;
  int64_t left_row, left_column;
  const float* right;
  float* to;
  int64_t rows, depth, columns;

  static constexpr int64_t kListed = int64_t{1} << 15;  // numbers of `left` whose places are listed at a time
  static constexpr int64_t kPacked = 6144;              // numbers of `right` that stay in the L1 cache
  static constexpr int64_t kScratch = 2 * kListed + kPacked + 64;  // numbers of 32 bits
};

/// The columns [begin, end) of the product, each number of it summed in the order of depth. `scratch` holds kScratch
/// numbers.
TRAINRUN_ON_EACH_PATH(void sparse_multiply(const SparseProduct& product, int64_t begin, int64_t end, float* scratch))
/// How many of these numbers are not 0.
TRAINRUN_ON_EACH_PATH(int64_t count_nonzero(const float* numbers, int64_t count))

}  // namespace trainrun::kernels
