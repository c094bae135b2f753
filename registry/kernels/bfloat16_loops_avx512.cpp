#if defined(__x86_64__)

#include "registry/kernels/bfloat16_loops.h"
#include "registry/kernels/small_products.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

namespace trainrun::kernels {
namespace {

constexpr int64_t kStrip = PairedBlocks::kStrip, kColumns = PairedBlocks::kPanel;
static_assert(kLanes == 16 && kColumns == int64_t{2} * kLanes && kStrip <= kLanes);

/// Pairs of depth.
struct Piece {
  int64_t first, pairs;
  int64_t end() const { return first + pairs; }
};

/// Up to 16 numbers as bfloat16, each in the lower half of a lane.
TRAINRUN_INLINE inline __m512i some_numbers(const PairedFactor& of, int64_t at, int64_t count) {
  if (of.is_bfloat16) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lowest(count), static_cast<const Bfloat16*>(of.at) + at));
  }
  const __m512 numbers = _mm512_maskz_loadu_ps(lowest(count), static_cast<const float*>(of.at) + at);
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
}

/// Pairs of the numbers at `even` and at `odd`, which may be missing.
TRAINRUN_INLINE inline __m512i some_pairs(const PairedFactor& of, int64_t even, int64_t odd, bool has_odd,
                                          int64_t count) {
  const __m512i low = some_numbers(of, even, count);
  if (!has_odd) return low;
  return _mm512_or_si512(low, _mm512_slli_epi32(some_numbers(of, odd, count), 16));
}

/// Up to 16 pairs that lie in memory one after the other; `count` numbers.
TRAINRUN_INLINE inline __m512i following_pairs(const PairedFactor& of, int64_t at, int64_t count) {
  if (of.is_bfloat16) {
    const auto mask = static_cast<__mmask32>(count >= int64_t{2} * kLanes ? ~uint32_t{0} : (uint32_t{1} << count) - 1);
    return _mm512_maskz_loadu_epi16(mask, static_cast<const Bfloat16*>(of.at) + at);
  }
  const float* const from = static_cast<const float*>(of.at) + at;
  const __m512 first = _mm512_maskz_loadu_ps(lowest(count), from);
  const __m512 second = count > kLanes ? _mm512_maskz_loadu_ps(lowest(count - kLanes), from + kLanes) : __m512{};
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

/// Whole panels of a matrix whose rows lie one after the other, rows in the order of memory: to[panel][pair][column],
/// zeros where there is none.
void pack_rows(const PairedProduct& shape, const PairedFactor& b, int64_t first, int64_t panels, const Piece& piece,
               uint32_t* to) {
  const int64_t step = piece.pairs * kColumns;  // from panel to panel
  for (int64_t pair = piece.first; pair < piece.end(); ++pair, to += kColumns) {
    const int64_t even = 2 * pair * b.row + first;
    const bool has_odd = 2 * pair + 1 < shape.depth;
    uint32_t* own = to;
    for (int64_t j = 0; j < panels * kColumns; j += kColumns, own += step) {
      const int64_t count = shape.columns - first - j;
      _mm512_storeu_si512(own, some_pairs(b, even + j, even + b.row + j, has_odd, count));
      _mm512_storeu_si512(own + kLanes,
                          some_pairs(b, even + j + kLanes, even + b.row + j + kLanes, has_odd, count - kLanes));
    }
  }
}

/// A panel of a matrix whose columns do.
void pack_columns_of_panel(const PairedProduct& shape, const PairedFactor& b, int64_t first, const Piece& piece,
                           uint32_t* to) {
  for (int64_t j = 0; j < kColumns; j += kLanes) {
    for (int64_t pair = 0; pair < piece.pairs; pair += kLanes) {
      const int64_t at = 2 * (piece.first + pair);
      Floats square[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) {
        const int64_t column = first + j + k;
        square[k] = column < shape.columns
                        ? reinterpret_cast<Floats>(following_pairs(b, column * b.column + at, shape.depth - at))
                        : Floats{};
      }
      transpose(square);
      for (int64_t k = 0; k < lesser(kLanes, piece.pairs - pair); ++k) {
        _mm512_storeu_ps(to + (pair + k) * kColumns + j, square[k]);
      }
    }
  }
}

/// A strip of rows as its products read it: pair d of row i is at[i * row + d * pair].
struct Strip {
  const uint32_t* at;
  int64_t row, pair;
};

/// Of an `a` whose rows lie side by side: to[pair][row]. Writes up to 4 numbers behind them.
Strip turned_strip(const PairedProduct& shape, const PairedFactor& a, int64_t first, const Piece& piece, uint32_t* to) {
  const auto mask = lowest(lesser(kStrip, shape.rows - first));
  const int64_t whole = lesser(piece.end(), shape.depth / 2) - piece.first;  // pairs of two numbers
  const auto* from = static_cast<const Bfloat16*>(a.at) + 2 * piece.first * a.column + first;
  const auto numbers = [&](const Bfloat16* at)
                           TRAINRUN_INLINE { return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at)); };
#pragma GCC unroll 4
  for (int64_t pair = 0; pair < whole; ++pair, from += 2 * a.column) {
    _mm512_storeu_si512(to + pair * kStrip,
                        _mm512_or_si512(numbers(from), _mm512_slli_epi32(numbers(from + a.column), 16)));
  }
  if (whole < piece.pairs) _mm512_storeu_si512(to + whole * kStrip, numbers(from));
  return {to, 1, kStrip};
}

/// Of an `a` whose rows lie one after the other: where they are, or, if pairs reach from one into the next or they are so
/// far apart that a cache keeps few of them, copies.
Strip straight_strip(const PairedProduct& shape, const PairedFactor& a, int64_t first, const Piece& piece,
                     uint32_t* to) {
  constexpr int64_t kApart = 1024;  // numbers
  const auto* const from = static_cast<const Bfloat16*>(a.at) + first * a.row + 2 * piece.first;
  if (shape.depth % 2 == 0 && a.row % kApart != 0) {
    return {reinterpret_cast<const uint32_t*>(from), a.row / 2, 1};
  }
  const int64_t numbers = lesser(2 * piece.pairs, shape.depth - 2 * piece.first);
  for (int64_t row = 0; row < lesser(kStrip, shape.rows - first); ++row) {
    for (int64_t at = 0; at < numbers; at += int64_t{2} * kLanes) {
      const __m512i pairs = following_pairs(a, first * a.row + 2 * piece.first + row * a.row + at, numbers - at);
      _mm512_mask_storeu_epi32(to + row * piece.pairs + at / 2, lowest(piece.pairs - at / 2), pairs);
    }
  }
  return {to, piece.pairs, 1};
}

TRAINRUN_INLINE inline void put_sums(const PairedResult& to, int64_t at, Floats sums, Floats bias, int64_t count) {
  if (to.is_bfloat16) {
    const auto numbers = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sums + bias));
    _mm256_mask_storeu_epi16(static_cast<Bfloat16*>(to.at) + at, lowest(count), numbers);
  } else {
    store(static_cast<float*>(to.at) + at, sums + bias, count);
  }
}

TRAINRUN_INLINE inline void fetch_to_write(const PairedResult& to, int64_t at) {
  if (to.is_bfloat16) {
    __builtin_prefetch(static_cast<const Bfloat16*>(to.at) + at, 1);
  } else {
    __builtin_prefetch(static_cast<const float*>(to.at) + at, 1);
    __builtin_prefetch(static_cast<const float*>(to.at) + at + kLanes, 1);
  }
}

/// Memory that the next strip reads, and that is fetched meanwhile: with each kLanes pairs so many lines, `line` bytes
/// apart, which begin `step` bytes behind those before.
struct Ahead {
  const char* at;
  int64_t lines, line, step;
};

/// What panel number `panel` of `panels` fetches for the strip from `row` on.
Ahead ahead_of(const PairedFactor& a, int64_t row, int64_t rows, const Piece& piece, int64_t panel, int64_t panels) {
  if (row >= rows) return {nullptr, 0, 0, 0};
  const auto* const at = static_cast<const Bfloat16*>(a.at);
  const auto size = static_cast<int64_t>(sizeof(Bfloat16));
  if (a.column == 1) {
    const int64_t from = lesser(row + kStrip * panel / panels, rows);
    const int64_t until = lesser(row + kStrip * (panel + 1) / panels, rows);
    return {reinterpret_cast<const char*>(at + from * a.row + 2 * piece.first), until - from, size * a.row,
            size * 2 * kLanes};
  }
  const int64_t lines = (int64_t{2} * kLanes + panels - 1) / panels,
                depth = 2 * (piece.first + piece.pairs * panel / panels);
  return {reinterpret_cast<const char*>(at + depth * a.column + row), lines, size * a.column, size * lines * a.column};
}

/// Some columns of a strip's product, at most a panel of them.
struct Tile {
  Strip a;
  const uint32_t* b;
  int64_t pairs, columns;
  float* sums;  // of the pieces of depth before this one, and after it; `sums_row` from row to row
  int64_t sums_row;
  bool is_first, is_last;  // piece of depth
  const float* bias;       // of these columns; may be null
  Ahead ahead;
};

/// kRows rows of a tile, from `row` on; those of the last piece go to `to` from `at` on.
template <int kRows>
[[gnu::noinline]] void multiply_rows(const Tile& tile, int64_t row, const PairedResult& to, int64_t at,
                                     int64_t to_row) {
  const int64_t count = tile.columns;
  float* const kept = tile.sums + row * tile.sums_row;
  Floats sum[kRows][2];
  unrolled<kRows>([&](auto i) TRAINRUN_INLINE { sum[i][0] = sum[i][1] = Floats{}; });
  if (tile.is_first && tile.is_last) {
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE { fetch_to_write(to, at + (row + i) * to_row); });
  } else {
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
      __builtin_prefetch(kept + i * tile.sums_row, 1);
      __builtin_prefetch(kept + i * tile.sums_row + kLanes, 1);
    });
  }
  const Strip a = tile.a;
  const uint32_t* left = a.at + row * a.row;
  const uint32_t* b = tile.b;
  const auto multiply = [&]() TRAINRUN_INLINE {
    const auto right0 = reinterpret_cast<__m512bh>(load_all(reinterpret_cast<const float*>(b)));
    const auto right1 = reinterpret_cast<__m512bh>(load_all(reinterpret_cast<const float*>(b) + kLanes));
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
      const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int32_t>(left[i * a.row])));
      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], factor, right0);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], factor, right1);
    });
    left += a.pair;
    b += kColumns;
  };
  int64_t d = 0;
  const char* ahead = tile.ahead.at;
  for (; d + kLanes <= tile.pairs; d += kLanes, ahead += tile.ahead.step) {
    for (int64_t i = 0; i < tile.ahead.lines; ++i) __builtin_prefetch(ahead + i * tile.ahead.line, 0, 2);
#pragma GCC unroll 2
    for (int64_t k = 0; k < kLanes; ++k) multiply();
  }
  for (; d < tile.pairs; ++d) multiply();
  if (!tile.is_first) {
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
      sum[i][0] += load_all(kept + i * tile.sums_row);
      sum[i][1] += load_all(kept + i * tile.sums_row + kLanes);
    });
  }
  if (!tile.is_last) {
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
      store_all(kept + i * tile.sums_row, sum[i][0]);
      store_all(kept + i * tile.sums_row + kLanes, sum[i][1]);
    });
    return;
  }
  const Floats bias0 = tile.bias == nullptr ? Floats{} : load(tile.bias, count);
  const Floats bias1 = tile.bias == nullptr ? Floats{} : load(tile.bias + kLanes, count - kLanes);
  unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
    const int64_t own = at + (row + i) * to_row;
    put_sums(to, own, sum[i][0], bias0, count);
    if (count > kLanes) put_sums(to, own + kLanes, sum[i][1], bias1, count - kLanes);
  });
}

void multiply_tile(const Tile& tile, int64_t rows, const PairedResult& to, int64_t at, int64_t to_row) {
  int64_t row = 0;
  const auto some = [&](auto count) {
    for (; row + count <= rows; row += count) multiply_rows<count>(tile, row, to, at, to_row);
  };
  some(Constant<kStrip>{});
  some(Constant<8>{});
  some(Constant<4>{});
  some(Constant<2>{});
  some(Constant<1>{});
}

/// At most PairedBlocks::kRows rows and kColumns columns.
void multiply_block(const PairedProduct& shape, const PairedFactor& a, const PairedFactor& b, const ProductPart& block,
                    const PairedResult& to, uint32_t* scratch) {
  uint32_t* const strip_room = scratch + PairedBlocks::kPairs * PairedBlocks::kColumns;
  auto* const sums = reinterpret_cast<float*>(strip_room + PairedBlocks::kPairs * kStrip + kLanes);
  const int64_t pieces = (shape.pairs() + PairedBlocks::kPairs - 1) / PairedBlocks::kPairs;
  const int64_t most = rounded_up((shape.pairs() + pieces - 1) / pieces, kLanes);
  const int64_t panels = (block.column_end - block.column_begin + kColumns - 1) / kColumns;
  Piece piece{0, 0};
  for (; piece.first < shape.pairs(); piece.first += piece.pairs) {
    piece.pairs = lesser(most, shape.pairs() - piece.first);
    if (b.column == 1) {
      constexpr int64_t kTogether = 4;  // panels: more would be written to the same lines of the L1 cache
      for (int64_t panel = 0; panel < panels; panel += kTogether) {
        uint32_t* const to = scratch + panel * piece.pairs * kColumns;
        pack_rows(shape, b, block.column_begin + panel * kColumns, lesser(kTogether, panels - panel), piece, to);
      }
    } else {
      for (int64_t panel = 0; panel < panels; ++panel) {
        uint32_t* const to = scratch + panel * piece.pairs * kColumns;
        pack_columns_of_panel(shape, b, block.column_begin + panel * kColumns, piece, to);
      }
    }
    for (int64_t row = block.row_begin; row < block.row_end; row += kStrip) {
      const Strip strip = (a.column == 1 ? straight_strip : turned_strip)(shape, a, row, piece, strip_room);
      for (int64_t column = block.column_begin; column < block.column_end; column += kColumns) {
        const int64_t before = column - block.column_begin;
        const Tile tile{strip,
                        scratch + before * piece.pairs,
                        piece.pairs,
                        lesser(kColumns, block.column_end - column),
                        sums + (row - block.row_begin) * PairedBlocks::kColumns + before,
                        PairedBlocks::kColumns,
                        piece.first == 0,
                        piece.end() == shape.pairs(),
                        to.bias == nullptr ? nullptr : to.bias + column,
                        ahead_of(a, row + kStrip, block.row_end, piece, before / kColumns, panels)};
        multiply_tile(tile, lesser(kStrip, block.row_end - row), to, row * shape.columns + column, shape.columns);
      }
    }
  }
}

}  // namespace

void multiply_part_bf16(const PairedProduct& shape, const PairedFactor& a, const PairedFactor& b,
                        const ProductPart& part, const PairedResult& to, uint32_t* scratch) {
  // Where all of depth is one piece, no sums are kept, and panels are packed once for all rows.
  const int64_t rows = shape.pairs() <= PairedBlocks::kPairs ? shape.rows : PairedBlocks::kRows;
  for (int64_t row = part.row_begin; row < part.row_end; row += rows) {
    for (int64_t column = part.column_begin; column < part.column_end; column += PairedBlocks::kColumns) {
      multiply_block(
          shape, a, b,
          {row, lesser(row + rows, part.row_end), column, lesser(column + PairedBlocks::kColumns, part.column_end)}, to,
          scratch);
    }
  }
}

}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)

#endif
