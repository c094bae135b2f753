#pragma once

#include "registry/kernels/product_loops.h"
#include "registry/kernels/small_products.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

// The loops of product_loops.h for one kind of units of depth, which says how they are read, written and multiplied
// (`BfloatPair`, `SingleFloat`). For sources named _avx512.cpp (see README.md): all is in an unnamed namespace.

namespace trainrun::kernels {
namespace {

constexpr int64_t kStrip = ProductBlocks::kStrip, kWidth = ProductBlocks::kPanel;  // rows; columns
constexpr int kVectors = kWidth / kLanes, kRowsAtOnce = ProductBlocks::kRowsAtOnce;
constexpr int64_t kPacked = int64_t{2} * kLanes;  // numbers that are packed at once
static_assert(kLanes == 16 && kWidth % kPacked == 0 && ProductBlocks::kTurned % kPacked == 0);

template <class Unit>
constexpr int64_t units_of(const ProductShape& shape) {
  return ceil_divide(shape.depth, Unit::kNumbers);
}

struct TwoVectors {
  __m512i first, second;
};

/// Units of depth.
struct Piece {
  int64_t first, units;
  int64_t end() const { return first + units; }
};

/// A matrix whose numbers of equal depth lie side by side in memory: rows of `b`, or columns of `a`.
struct SideBySide {
  const ProductFactor& of;
  int64_t step;        // from one number of depth to the next
  int64_t depth, end;  // how many there are, and how many lie side by side
};

/// Panels of `width` numbers from number `first` on, in the order of memory: to[panel][unit][number], zeros where there
/// is none.
template <class Unit>
void pack_side_by_side(const SideBySide& matrix, int64_t first, int64_t width, int64_t panels, const Piece& piece,
                       uint32_t* to) {
  const int64_t step = piece.units * width;  // from panel to panel
  for (int64_t unit = piece.first; unit < piece.end(); ++unit, to += width) {
    const int64_t depth = unit * Unit::kNumbers, at = depth * matrix.step + first;
    uint32_t* own = to;
    for (int64_t panel = 0; panel < panels; ++panel, own += step) {
      for (int64_t i = 0; i < width; i += kPacked) {
        const int64_t j = panel * width + i;
        const TwoVectors units =
            Unit::side_by_side(matrix.of, at + j, matrix.step, matrix.depth - depth, matrix.end - first - j);
        _mm512_storeu_si512(own + i, units.first);
        _mm512_storeu_si512(own + i + kLanes, units.second);
      }
    }
  }
}

/// A panel of a matrix whose columns do.
template <class Unit>
void pack_columns_of_panel(const ProductShape& shape, const ProductFactor& b, int64_t first, const Piece& piece,
                           uint32_t* to) {
  for (int64_t j = 0; j < kWidth; j += kLanes) {
    for (int64_t unit = 0; unit < piece.units; unit += kLanes) {
      const int64_t at = (piece.first + unit) * Unit::kNumbers;
      Floats square[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) {
        const int64_t column = first + j + k;
        square[k] = column < shape.columns
                        ? reinterpret_cast<Floats>(Unit::following(b, column * b.column + at, shape.depth - at))
                        : Floats{};
      }
      transpose(square);
      for (int64_t k = 0; k < lesser(kLanes, piece.units - unit); ++k) {
        _mm512_storeu_ps(to + (unit + k) * kWidth + j, square[k]);
      }
    }
  }
}

/// Rows as their products read them: unit d of row i is at[i * row + d * unit].
struct Strip {
  const uint32_t* at;
  int64_t row, unit;
};

/// Of an `a` whose rows lie one after the other: where they are, or, if units reach from one into the next, copies.
template <class Unit>
Strip straight_strip(const ProductShape& shape, const ProductFactor& a, int64_t first, const Piece& piece,
                     uint32_t* to) {
  const int64_t begin = first * a.row + piece.first * Unit::kNumbers;
  if (shape.depth % Unit::kNumbers == 0 && a.row % Unit::kNumbers == 0) {
    const auto* const from = static_cast<const typename Unit::Number*>(a.at) + begin;
    return {reinterpret_cast<const uint32_t*>(from), a.row / Unit::kNumbers, 1};
  }
  const int64_t numbers = lesser(piece.units * Unit::kNumbers, shape.depth - piece.first * Unit::kNumbers);
  for (int64_t row = 0; row < lesser(kStrip, shape.rows - first); ++row) {
    for (int64_t unit = 0; unit < piece.units; unit += kLanes) {
      const int64_t at = unit * Unit::kNumbers;
      const __m512i units = Unit::following(a, begin + row * a.row + at, numbers - at);
      _mm512_mask_storeu_epi32(to + row * piece.units + unit, lowest(piece.units - unit), units);
    }
  }
  return {to, piece.units, 1};
}

TRAINRUN_INLINE inline void put_floats(const ProductResult& to, int64_t at, Floats sums, int64_t count) {
  float* const own = static_cast<float*>(to.at) + at;
  store(own, to.adds ? load(own, count) + sums : sums, count);
}

template <int kWide>
TRAINRUN_INLINE inline void fetch_to_write(const ProductResult& to, int64_t at) {
  unrolled<kWide>([&](auto j) TRAINRUN_INLINE {
    if (!to.is_bfloat16) {
      __builtin_prefetch(static_cast<const float*>(to.at) + at + j * kLanes, 1);
    } else if (j % 2 == 0) {
      __builtin_prefetch(static_cast<const Bfloat16*>(to.at) + at + j * kLanes, 1);
    }
  });
}

/// Rows [begin, end) of `a` that are read next.
struct NextRows {
  int64_t begin, end;
  Piece piece;  // of no units where there is none
};

/// Memory that the next rows are read from, and that is fetched meanwhile: each group of rows of a tile fetches its
/// share, some places with each kLanes units until there are none left.
struct Ahead {
  const char* at;
  int64_t of_group;       // bytes from the places of a group to those of the next
  int64_t steps;          // how often kLanes units are multiplied and
  int64_t places, place;  // so many places fetched, which lie so many bytes apart
  int64_t step;           // bytes from those of a step to those of the next
  int64_t bytes;          // of a place
};

/// What tile number `tile` of `tiles` fetches, whose rows are computed in so many groups.
template <class Unit>
Ahead ahead_of(const ProductFactor& a, const NextRows& next, int64_t tile, int64_t tiles, int64_t groups) {
  if (next.piece.units <= 0) return {};
  using Number = typename Unit::Number;
  constexpr int64_t kSize = sizeof(Number), kNumbers = Unit::kNumbers;
  const int64_t rows = next.end - next.begin, steps = ceil_divide(next.piece.units, kLanes);
  const auto* at = static_cast<const Number*>(a.at) + next.begin * a.row + next.piece.first * kNumbers * a.column;
  const bool is_straight = a.column == 1;  // then a place is a line of a row; else all rows of a number of depth
  const int64_t share = ceil_divide(is_straight ? rows : next.piece.units * kNumbers, tiles * groups);
  const int64_t line = is_straight ? a.row : a.column, place = kSize * line;
  const auto* const first = reinterpret_cast<const char*>(at + tile * groups * share * line);
  if (is_straight) return {first, share * place, steps, share, place, kSize * kNumbers * kLanes, 1};
  const int64_t places = ceil_divide(share, steps);
  return {first, share * place, ceil_divide(share, places), places, place, places * place, kSize * rows};
}

/// Some columns of a strip's product, at most a panel of them.
struct Tile {
  Strip a;
  const uint32_t* b;
  int64_t b_row;  // from unit to unit
  int64_t units, columns;
  float* sums;  // of the pieces of depth before this one, and after it; `sums_row` from row to row
  int64_t sums_row;
  bool is_first, is_last;  // piece of depth
  const float* bias;       // of these columns; may be null
  Ahead ahead;
};

/// kRows rows of a tile, from `row` on, and kWide times kLanes columns; those of the last piece go to `to` from `at` on.
template <class Unit, int kRows, int kWide>
[[gnu::noinline]] void multiply_rows(const Tile& tile, int64_t row, const ProductResult& to, int64_t at,
                                     int64_t to_row) {
  // The panel is fetched so many units before it is read: the processor's own fetching stops with each page.
  constexpr int64_t kFetched = 4, kLine = 64;
  float* const kept = tile.sums + row * tile.sums_row;
  Floats sum[kRows][kWide];
  unrolled<kRows * kWide>([&](auto i) TRAINRUN_INLINE { sum[i / kWide][i % kWide] = Floats{}; });
  if (tile.is_first && tile.is_last) {
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE { fetch_to_write<kWide>(to, at + (row + i) * to_row); });
  } else {
    unrolled<kRows * kWide>(
        [&](auto i) TRAINRUN_INLINE { __builtin_prefetch(kept + i / kWide * tile.sums_row + i % kWide * kLanes, 1); });
  }
  const Strip a = tile.a;
  const uint32_t* left = a.at + row * a.row;
  const auto* b = reinterpret_cast<const float*>(tile.b);
  const int64_t b_row = tile.b_row;
  const auto multiply = [&]() TRAINRUN_INLINE {
    Floats right[kWide];
    unrolled<kWide>([&](auto j) TRAINRUN_INLINE {
      right[j] = load_all(b + j * kLanes);
      __builtin_prefetch(b + kFetched * b_row + j * kLanes);
    });
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
      const auto factor = reinterpret_cast<Floats>(_mm512_set1_epi32(static_cast<int32_t>(left[i * a.row])));
      unrolled<kWide>([&](auto j) TRAINRUN_INLINE { sum[i][j] = Unit::added(factor, right[j], sum[i][j]); });
    });
    left += a.unit;
    b += b_row;
  };
  int64_t d = 0;
  const char* ahead = tile.ahead.at + row / kRowsAtOnce * tile.ahead.of_group;
  for (int64_t steps = tile.ahead.steps; d + kLanes <= tile.units; d += kLanes, ahead += tile.ahead.step) {
    const int64_t places = steps-- > 0 ? tile.ahead.places : 0;
    for (int64_t i = 0; i < places; ++i) {
      const char* const place = ahead + i * tile.ahead.place;
      for (int64_t byte = 0; byte < tile.ahead.bytes; byte += kLine) __builtin_prefetch(place + byte, 0, 2);
    }
#pragma GCC unroll 2
    for (int64_t k = 0; k < kLanes; ++k) multiply();
  }
  for (; d < tile.units; ++d) multiply();
  if (!tile.is_first) {
    unrolled<kRows * kWide>([&](auto i) TRAINRUN_INLINE {
      sum[i / kWide][i % kWide] += load_all(kept + i / kWide * tile.sums_row + i % kWide * kLanes);
    });
  }
  if (!tile.is_last) {
    unrolled<kRows * kWide>([&](auto i) TRAINRUN_INLINE {
      store_all(kept + i / kWide * tile.sums_row + i % kWide * kLanes, sum[i / kWide][i % kWide]);
    });
    return;
  }
  unrolled<kWide>([&](auto j) TRAINRUN_INLINE {
    const int64_t count = tile.columns - j * kLanes;
    const Floats bias = tile.bias == nullptr ? Floats{} : load(tile.bias + j * kLanes, count);
    unrolled<kRows>(
        [&](auto i) TRAINRUN_INLINE { Unit::put(to, at + (row + i) * to_row + j * kLanes, sum[i][j] + bias, count); });
  });
}

/// In groups of rows as equal as can be: each reads the panel anew.
template <class Unit, int kWide>
void multiply_columns(const Tile& tile, int64_t rows, const ProductResult& to, int64_t at, int64_t to_row) {
  int64_t row = 0;
  for (int64_t groups = ceil_divide(rows, kRowsAtOnce); groups > 0; --groups) {
    const int64_t count = ceil_divide(rows - row, groups);
    unrolled<kRowsAtOnce>([&](auto less) TRAINRUN_INLINE {
      if (count == less + 1) multiply_rows<Unit, less + 1, kWide>(tile, row, to, at, to_row);
    });
    row += count;
  }
}

template <class Unit>
void multiply_tile(const Tile& tile, int64_t rows, const ProductResult& to, int64_t at, int64_t to_row) {
  const int64_t wide = ceil_divide(tile.columns, kLanes);
  unrolled<kVectors>([&](auto less) TRAINRUN_INLINE {
    if (wide == less + 1) multiply_columns<Unit, less + 1>(tile, rows, to, at, to_row);
  });
}

/// The panels of a block, one after the other.
template <class Unit>
void pack_panels(const ProductShape& shape, const ProductFactor& b, const ProductPart& block, const Piece& piece,
                 uint32_t* to) {
  constexpr int64_t kTogether = 2;  // panels: more would be written to the same lines of the L1 cache
  const int64_t panels = ceil_divide(block.column_end - block.column_begin, kWidth);
  const SideBySide rows{b, b.row, shape.depth, shape.columns};
  for (int64_t panel = 0; panel < panels; panel += b.column == 1 ? kTogether : 1) {
    uint32_t* const own = to + panel * piece.units * kWidth;
    const int64_t first = block.column_begin + panel * kWidth;
    if (b.column == 1) {
      pack_side_by_side<Unit>(rows, first, kWidth, lesser(kTogether, panels - panel), piece, own);
    } else {
      pack_columns_of_panel<Unit>(shape, b, first, piece, own);
    }
  }
}

/// At most ProductBlocks::kRows rows and ProductBlocks::columns columns.
template <class Unit>
void multiply_block(const ProductShape& shape, const ProductFactor& a, const ProductFactor& b, const ProductPart& block,
                    const ProductResult& to, uint32_t* scratch, bool is_packed) {
  uint32_t* const strip_room = scratch + ProductBlocks::kUnits * ProductBlocks::kColumns;
  auto* const sums = reinterpret_cast<float*>(strip_room + ProductBlocks::kStrips);
  const int64_t units = units_of<Unit>(shape);
  const int64_t pieces = ProductBlocks::is_one_piece(a, units) ? 1 : ceil_divide(units, ProductBlocks::kUnits);
  const int64_t most = rounded_up(ceil_divide(units, pieces), kLanes);
  const int64_t panels = ceil_divide(block.column_end - block.column_begin, kWidth);
  const bool is_direct = Unit::kNumbers == 1 && is_read_directly(shape, b), is_turned = a.column != 1;
  const SideBySide columns{a, a.column, shape.depth, shape.rows};
  const int64_t turned = rounded_up(block.row_end - block.row_begin, kPacked);
  const int64_t of_strip = is_turned ? lesser(ProductBlocks::kTurned, turned) : kStrip;
  Piece piece{0, 0};
  for (; piece.first < units; piece.first += piece.units) {
    piece.units = lesser(most, units - piece.first);
    if (!is_direct && !is_packed) pack_panels<Unit>(shape, b, block, piece, scratch);
    for (int64_t row = block.row_begin; row < block.row_end; row += of_strip) {
      const int64_t end = lesser(row + of_strip, block.row_end);
      if (is_turned) pack_side_by_side<Unit>(columns, row, of_strip, 1, piece, strip_room);
      const Strip strip =
          is_turned ? Strip{strip_room, 1, of_strip} : straight_strip<Unit>(shape, a, row, piece, strip_room);
      NextRows next{end, lesser(end + of_strip, block.row_end), piece};
      if (end == block.row_end) {
        next = {
            block.row_begin, lesser(block.row_begin + of_strip, end), {piece.end(), lesser(most, units - piece.end())}};
      }
      for (int64_t column = block.column_begin; column < block.column_end; column += kWidth) {
        const int64_t before = column - block.column_begin;
        const Tile tile{strip,
                        is_direct ? static_cast<const uint32_t*>(b.at) + piece.first * b.row + column
                                  : scratch + before * piece.units,
                        is_direct ? b.row : kWidth,
                        piece.units,
                        lesser(kWidth, block.column_end - column),
                        sums + (row - block.row_begin) * ProductBlocks::kColumns + before,
                        ProductBlocks::kColumns,
                        piece.first == 0,
                        piece.end() == units,
                        to.bias == nullptr ? nullptr : to.bias + column,
                        ahead_of<Unit>(a, next, before / kWidth, panels, ceil_divide(end - row, kRowsAtOnce))};
        multiply_tile<Unit>(tile, end - row, to, row * shape.columns + column, shape.columns);
      }
    }
  }
}

template <class Unit>
void multiply_part(const ProductShape& shape, const ProductFactor& a, const ProductFactor& b, const ProductPart& part,
                   const ProductResult& to, uint32_t* scratch, bool is_packed) {
  const int64_t units = units_of<Unit>(shape), columns = ProductBlocks::columns(a, units);
  const int64_t rows = ProductBlocks::is_one_piece(a, units) ? shape.rows : ProductBlocks::kRows;
  for (int64_t row = part.row_begin; row < part.row_end; row += rows) {
    for (int64_t column = part.column_begin; column < part.column_end; column += columns) {
      const int64_t row_end = lesser(row + rows, part.row_end);
      const int64_t column_end = lesser(column + columns, part.column_end);
      multiply_block<Unit>(shape, a, b, {row, row_end, column, column_end}, to, scratch, is_packed);
    }
  }
}

}  // namespace
}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)
