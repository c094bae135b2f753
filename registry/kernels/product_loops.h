#pragma once

#include <cstdint>

// The loops of matrix_product.h, on bare memory. Declarations only: sources that are compiled for AVX-512, with and
// without its products of bfloat16, include this header (see README.md).

namespace trainrun::kernels {

/// a [rows, depth] times b [depth, columns].
struct ProductShape {
  int64_t rows, depth, columns;
};

/// A matrix in memory: number (i, j) is at[i * row + j * column]; one of the steps is 1.
struct ProductFactor {
  const void* at;
  int64_t row, column;
  bool is_bfloat16;  // else float32
};

/// Where the product goes, row after row without gaps.
struct ProductResult {
  void* at;
  bool is_bfloat16;   // else float32
  const float* bias;  // of each column; may be null
  bool adds = false;  // to the float32 that are there
};

/// Rows and columns [begin, end) of a product.
struct ProductPart {
  int64_t row_begin, row_end, column_begin, column_end;
};

/// How a part is computed: by panels of columns, which stay in the L2 cache, and strips of rows, which pass by them.
/// Depth is counted in units of 32 bits: a float32, or two bfloat16 that follow each other.
struct ProductBlocks {
  static constexpr int64_t kRowsAtOnce = 6;           // that are computed together: as many sums as registers hold
  static constexpr int64_t kPanel = 64;               // and columns
  static constexpr int64_t kStrip = 2 * kRowsAtOnce;  // rows of a strip
  static constexpr int64_t kUnits = 512;              // of depth at a time
  static constexpr int64_t kColumns = 6 * kPanel;     // whose panels the cache keeps
  static constexpr int64_t kOnePiece = 2 * kUnits;    // of depth at once, with fewer columns
  static constexpr int64_t kRows = 86 * kStrip;       // whose sums are kept from one piece of depth to the next
  static constexpr int64_t kTurned = 96;  // rows of a strip where they lie side by side: copied, six lines at a time
  static constexpr int64_t kStrips = kUnits * kTurned;                                 // numbers of 32 bits
  static constexpr int64_t kScratch = kUnits * kColumns + kStrips + kRows * kColumns;  // of them
  static_assert(kStrips >= kOnePiece * kStrip);

  /// Whether all of depth is one piece: no sums are kept, and what is packed of `b` serves all rows. Where rows of `a` lie
  /// side by side, they would be packed anew for each of the more blocks of columns.
  static constexpr bool is_one_piece(const ProductFactor& a, int64_t units) {
    return units <= (a.column == 1 ? kOnePiece : kUnits);
  }
  static constexpr int64_t columns(const ProductFactor& a, int64_t units) {
    return units <= kUnits || !is_one_piece(a, units) ? kColumns : kUnits * kColumns / units / kPanel * kPanel;
  }
};

/// Whether the loops of float32 read `b` where it is, and pack nothing: of longer rows a cache would keep few.
inline bool is_read_directly(const ProductShape& shape, const ProductFactor& b) {
  constexpr int64_t kLine = 16, kLongest = 512;  // numbers
  return !b.is_bfloat16 && b.column == 1 && shape.columns % kLine == 0 && shape.columns <= kLongest;
}

/// Computes a part of the product, each number of it summed in the order of depth, piece by piece. `scratch` holds
/// ProductBlocks::kScratch numbers; if `is_packed`, those that it was left with by a part of the same columns, which are
/// at most ProductBlocks::columns, and all of depth, which is one piece. Of bfloat16, two products are added to a sum of
/// float32 at once; `a` is of bfloat16, and `b` is rounded to it where it is of float32.
void multiply_part_bf16(const ProductShape& shape, const ProductFactor& a, const ProductFactor& b,
                        const ProductPart& part, const ProductResult& to, uint32_t* scratch, bool is_packed = false);
/// The same of float32 alone.
void multiply_part_fp32(const ProductShape& shape, const ProductFactor& a, const ProductFactor& b,
                        const ProductPart& part, const ProductResult& to, uint32_t* scratch, bool is_packed = false);

}  // namespace trainrun::kernels
