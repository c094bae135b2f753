#pragma once

#include <cstddef>
#include <cstdint>

// The loops of bfloat16_product.h, on bare memory. Declarations only: a source that is compiled for AVX-512's products of
// bfloat16 includes this header (see README.md).

namespace trainrun::kernels {

/// a [rows, depth] times b [depth, columns]. Two numbers that follow each other in depth are a pair: the processor adds
/// both their products to a sum of float32 at once.
struct PairedProduct {
  int64_t rows, depth, columns;
  int64_t pairs() const { return (depth + 1) / 2; }
};

/// A matrix in memory: number (i, j) is at[i * row + j * column]; one of the steps is 1.
struct PairedFactor {
  const void* at;
  int64_t row, column;
  bool is_bfloat16;  // else float32, rounded as it is read
};

/// Where the product goes, row after row without gaps.
struct PairedResult {
  void* at;
  bool is_bfloat16;   // else float32
  const float* bias;  // of each column; may be null
};

/// Rows and columns [begin, end) of a product.
struct ProductPart {
  int64_t row_begin, row_end, column_begin, column_end;
};

/// How a part is computed: by panels of columns, which stay in the L2 cache, and strips of rows, in the L1 cache, that
/// pass by them.
struct PairedBlocks {
  static constexpr int64_t kStrip = 12;   // rows that are computed together: as many sums as registers hold
  static constexpr int64_t kPanel = 32;   // and columns
  static constexpr int64_t kPairs = 512;  // of depth at a time
  static constexpr int64_t kColumns = int64_t{12} * kPanel;
  static constexpr int64_t kRows = int64_t{86} * kStrip;  // whose sums are kept from one piece of depth to the next
  static constexpr int64_t kScratch = kPairs * (kColumns + kStrip) + 16 + kRows * kColumns;  // numbers of 32 bits
};

/// Computes a part of the product, each number of it summed in the order of depth, piece by piece. `a` is of bfloat16;
/// `scratch` holds PairedBlocks::kScratch numbers.
void multiply_part_bf16(const PairedProduct& shape, const PairedFactor& a, const PairedFactor& b,
                        const ProductPart& part, const PairedResult& to, uint32_t* scratch);

}  // namespace trainrun::kernels
