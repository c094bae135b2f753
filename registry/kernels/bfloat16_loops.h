#pragma once

#include <cstddef>
#include <cstdint>

// The loops of bfloat16_product.h, on bare memory. Declarations only: a source that is compiled for AVX-512's products of
// bfloat16 includes this header (see README.md).

namespace trainrun::kernels {

/// a [rows, depth] times b [depth, columns]. Two numbers that follow each other in depth are a pair: the processor adds
/// both their products to a sum of float32 at once.
struct PairedProduct {
  static constexpr int64_t kStrip = 12;    // rows that are computed together: as many sums as registers hold
  static constexpr int64_t kColumns = 32;  // and columns: a panel

  int64_t rows, depth, columns;
  int64_t pairs() const { return (depth + 1) / 2; }
  int64_t strips() const { return (rows + kStrip - 1) / kStrip; }
  int64_t panels() const { return (columns + kColumns - 1) / kColumns; }
};

/// A matrix in memory: number (i, j) is at[i * row + j * column]; one of the steps is 1.
struct PairedFactor {
  const void* at;
  int64_t row, column;
  bool is_bfloat16;  // else float32, rounded as it is read
};

/// Pairs in memory: pair d of row i is at[i * row + d * pair], and strip s begins at[s * strip].
struct PairedRows {
  const uint32_t* at;
  int64_t row, pair, strip;
};

/// Where the product goes, row after row without gaps.
struct PairedResult {
  void* at;
  bool is_bfloat16;   // else float32
  const float* bias;  // of each column; may be null
};

/// The panels [begin, end) of b: to[panel][pair][column], zeros where there is none.
void pack_panels_bf16(const PairedProduct& shape, const PairedFactor& b, int64_t begin, int64_t end, uint32_t* to);
/// The strips [begin, end) of an `a` of bfloat16 whose rows lie side by side (row is 1): to[strip][pair][row], zeros where
/// there is none.
void pack_strips_bf16(const PairedProduct& shape, const PairedFactor& a, int64_t begin, int64_t end, uint32_t* to);
/// The strips [begin, end) of the product, of b as `pack_panels_bf16` gives it.
void multiply_strips_bf16(const PairedProduct& shape, const PairedRows& a, const uint32_t* b, int64_t begin,
                          int64_t end, const PairedResult& to);

}  // namespace trainrun::kernels
