#include "registry/kernels/sparse_product_simd.h"

#include "registry/kernels/small_products.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

// For each row of `left`, the places of its numbers that are not 0 are listed; only these are multiplied. Columns go by
// blocks as wide as lets the rows of `right` that are summed stay in the L1 cache, where they are copied to.

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

constexpr int64_t kLine = 16;           // floats
constexpr int64_t kMostOfChunk = 128;   // of depth that is packed at a time
constexpr int64_t kMostOfDepth = 1024;  // of depth whose places are listed at a time
constexpr int64_t kMostLists = 512;     // of a row and a chunk
static_assert(kMostLists >= SparseProduct::kListed / kMostOfChunk);

/// The numbers of a row's chunk that are not 0, and where the rows of `right` begin that they are multiplied with, packed
/// with `width` floats each: `numbers` may be where they are. Returns how many there are. Writes up to a vector more.
int64_t list(const float* from, int64_t depth, int64_t width, float* numbers, int32_t* places) {
  int64_t count = 0, k = 0;
#if defined(__AVX512F__)
  __m512i place = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                     _mm512_set1_epi32(static_cast<int32_t>(width)));
  const __m512i step = _mm512_set1_epi32(static_cast<int32_t>(width * kLanes));
  for (; k < depth; k += kLanes) {
    const Floats some = load(from + k, depth - k);
    const __mmask16 mask = _mm512_cmp_ps_mask(some, _mm512_setzero_ps(), _CMP_NEQ_UQ);  // a NaN is not 0
    _mm512_storeu_ps(numbers + count, _mm512_maskz_compress_ps(mask, some));
    _mm512_storeu_si512(places + count, _mm512_maskz_compress_epi32(mask, place));
    count += __builtin_popcount(mask);
    place = _mm512_add_epi32(place, step);
  }
#else
  for (; k < depth; ++k) {
    const float number = from[k];
    numbers[count] = number;
    places[count] = static_cast<int32_t>(k * width);
    count += number != 0 ? 1 : 0;
  }
#endif
  return count;
}

/// to[row][depth]: some rows of a matrix whose rows lie side by side, `column` apart in depth.
void turn(const float* from, int64_t column, int64_t rows, int64_t depth, int64_t to_row, float* to) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t k = 0; k < depth; k += kLanes) {
      Floats square[kLanes];
      for (int64_t d = 0; d < kLanes; ++d) {
        square[d] = k + d < depth ? load(from + (k + d) * column + i, rows - i) : Floats{};
      }
      transpose(square);
      for (int64_t r = 0; r < lesser(kLanes, rows - i); ++r) store(to + (i + r) * to_row + k, square[r], depth - k);
    }
  }
}

/// Rows of `right`, of columns of a block: to[k][width], zeros after the last column.
void pack(const float* from, int64_t row, int64_t depth, int64_t columns, int64_t width, float* to) {
  for (int64_t k = 0; k < depth; ++k, from += row, to += width) {
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) store_all(to + j, load_all(from + j));
    for (; j < width; j += kLanes) store_all(to + j, load(from + j, columns - j));
  }
}

/// to[0..columns) (+)= the sum of numbers[i] * packed[places[i]][0..width), by kChains sums that do not wait for each other.
template <int kVectors, int kChains>
TRAINRUN_INLINE inline void sum_row(const float* numbers, const int32_t* places, int64_t count, const float* packed,
                                    int64_t columns, bool adds, float* to) {
  Floats sum[kChains][kVectors];
  unrolled<kChains * kVectors>([&](auto i) TRAINRUN_INLINE { sum[i / kVectors][i % kVectors] = Floats{}; });
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains) {
    unrolled<kChains>([&](auto chain) TRAINRUN_INLINE {
      const Floats number = all_of(numbers[i + chain]);
      const float* const row = packed + places[i + chain];
      unrolled<kVectors>([&](auto v) TRAINRUN_INLINE {
        sum[chain][v] = multiplied_sum(number, load_all(row + v * kLanes), sum[chain][v]);
      });
    });
  }
  for (; i < count; ++i) {
    const Floats number = all_of(numbers[i]);
    const float* const row = packed + places[i];
    unrolled<kVectors>(
        [&](auto v) TRAINRUN_INLINE { sum[0][v] = multiplied_sum(number, load_all(row + v * kLanes), sum[0][v]); });
  }
  unrolled<kVectors>([&](auto v) TRAINRUN_INLINE {
    unrolled<kChains - 1>([&](auto chain) TRAINRUN_INLINE { sum[0][v] += sum[chain + 1][v]; });
  });
  if (columns >= int64_t{kVectors} * kLanes) {
    unrolled<kVectors>([&](auto v) TRAINRUN_INLINE {
      float* const own = to + v * kLanes;
      store_all(own, adds ? load_all(own) + sum[0][v] : sum[0][v]);
    });
    return;
  }
  unrolled<kVectors>([&](auto v) TRAINRUN_INLINE {
    const int64_t rest = columns - v * kLanes;
    store(to + v * kLanes, adds ? load(to + v * kLanes, rest) + sum[0][v] : sum[0][v], rest);
  });
}

/// Memory that will be read soon: rows of some lines each, a few at a time.
struct Ahead {
  const float* at;
  int64_t row, lines, rows, line = 0;

  TRAINRUN_INLINE void call(int64_t count) {
    for (; count > 0 && rows > 0; --count) {
      __builtin_prefetch(at + line * kLine, 0, 2);
      if (++line == lines) line = 0, at += row, --rows;
    }
  }
};

/// Rows [begin, end) of `left` and depth [from, from + depth), for the columns [column_begin, column_end).
template <int kVectors, int kChains>
void multiply_rows(const SparseProduct& p, int64_t begin, int64_t end, int64_t from, int64_t depth, int64_t chunk,
                   int64_t column_begin, int64_t column_end, float* scratch) {
  constexpr int64_t kWidth = int64_t{kVectors} * kLanes;
  float* const packed = scratch;
  const int64_t rows = end - begin, chunks = ceil_divide(depth, chunk);
  float* const numbers = scratch + SparseProduct::kPacked;
  auto* const places = reinterpret_cast<int32_t*>(numbers + SparseProduct::kListed);
  int32_t counts[kMostLists];
  const auto list_of = [&](int64_t c, int64_t row) { return (c * rows + row) * chunk; };
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t first = from + c * chunk, own = lesser(chunk, from + depth - first);
    const float* left = p.left + begin * p.left_row + first * p.left_column;
    int64_t left_row = p.left_row;
    if (p.left_column != 1) {
      turn(left, p.left_column, rows, own, chunk, numbers + list_of(c, 0));
      left = numbers + list_of(c, 0);
      left_row = chunk;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = list_of(c, row);
      counts[c * rows + row] =
          static_cast<int32_t>(list(left + row * left_row, own, kWidth, numbers + at, places + at));
    }
  }
  for (int64_t column = column_begin; column < column_end; column += kWidth) {
    const int64_t columns = lesser(kWidth, column_end - column);
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = from + c * chunk, own = lesser(chunk, from + depth - first);
      pack(p.right + first * p.columns + column, p.columns, own, columns, kWidth, packed);
      const bool is_last = c + 1 == chunks;  // of this block of columns: then the next block's are fetched
      const int64_t next = is_last ? from : first + chunk, next_column = is_last ? column + kWidth : column;
      const int64_t next_columns = lesser(kWidth, column_end - next_column);
      Ahead ahead{p.right + next * p.columns + next_column, p.columns, ceil_divide(next_columns, kLine),
                  next_columns > 0 ? lesser(chunk, from + depth - next) : 0};
      const int64_t calls = ceil_divide(ahead.lines * ahead.rows, rows);
      float* to = p.to + begin * p.columns + column;
      for (int64_t row = 0; row < rows; ++row, to += p.columns) {
        for (int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(to + p.columns + j, 1);
        ahead.call(calls);
        const int64_t at = list_of(c, row);
        sum_row<kVectors, kChains>(numbers + at, places + at, counts[c * rows + row], packed, columns,
                                   from > 0 || c > 0, to);
      }
    }
  }
}

}  // namespace

void sparse_multiply(const SparseProduct& p, int64_t begin, int64_t end, float* scratch) {
  for (int64_t from = 0; from < p.depth; from += kMostOfDepth) {
    const int64_t depth = lesser(kMostOfDepth, p.depth - from);
    const int64_t chunk = lesser(kMostOfChunk, rounded_up(depth, kLine));
    const int64_t most_rows = lesser(SparseProduct::kListed / rounded_up(depth, chunk), kMostLists);
    for (int64_t row = 0; row < p.rows; row += most_rows) {
      const int64_t row_end = lesser(row + most_rows, p.rows);
      const int64_t fits = SparseProduct::kPacked / chunk / kLanes;  // vectors
      if (fits >= 12) {
        multiply_rows<12, 1>(p, row, row_end, from, depth, chunk, begin, end, scratch);
      } else if (fits >= 6) {
        multiply_rows<6, 2>(p, row, row_end, from, depth, chunk, begin, end, scratch);
      } else {
        multiply_rows<3, 4>(p, row, row_end, from, depth, chunk, begin, end, scratch);
      }
    }
  }
}

int64_t count_nonzero(const float* numbers, int64_t count) {
  Ints found{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) found -= load_all(numbers + i) != Floats{};
  int64_t sum = 0;
  for (int k = 0; k < kLanes; ++k) sum += found[k];
  for (; i < count; ++i) sum += numbers[i] != 0 ? 1 : 0;
  return sum;
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)
