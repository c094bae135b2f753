#pragma once

#include "registry/kernels/panel.h"
#include "registry/kernels/stored_floats.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

// Products of matrices that lie in the caches, by sums in registers. For sources named _simd.cpp (see README.md): all is
// in an unnamed namespace.

namespace trainrun::kernels {
namespace {

constexpr int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_divide(int64_t count, int64_t size) { return (count + size - 1) / size; }
constexpr int64_t rounded_up(int64_t count, int64_t to) { return ceil_divide(count, to) * to; }

template <int kNumber>
struct Constant {
  static constexpr int value = kNumber;
  constexpr operator int() const { return kNumber; }  // NOLINT(google-explicit-constructor)
};

template <class Call, int... kNumbers>
TRAINRUN_INLINE inline void unrolled(const Call& call, Numbers<kNumbers...>) {
  (call(Constant<kNumbers>{}), ...);
}
/// Calls call(Constant<0>{}), call(Constant<1>{}), …
template <int kCount, class Call>
TRAINRUN_INLINE inline void unrolled(const Call& call) {
  unrolled(call, typename CountTo<kCount>::All{});
}

/// A square of kLanes rows becomes its columns: each round puts those side by side that are half of all apart.
TRAINRUN_INLINE inline void transpose(Floats* rows) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Floats next[kLanes];
    unrolled<kLanes / 2>([&](auto i) TRAINRUN_INLINE {
      next[2 * i] = interleaved_low(rows[i], rows[i + kLanes / 2]);
      next[2 * i + 1] = interleaved_high(rows[i], rows[i + kLanes / 2]);
    });
    unrolled<kLanes>([&](auto i) TRAINRUN_INLINE { rows[i] = next[i]; });
  }
}

#if defined(__AVX512F__)
constexpr int kMostRows = 12;  // as many sums as registers hold
#else
constexpr int kMostRows = 6;
#endif

/// A matrix in memory: number (i, d) is at[i * row + d * column].
struct Factors {
  const float* at;
  int64_t row, column;
};

/// What a product adds to its sums: the products of float32.
struct FloatTerms {
  TRAINRUN_INLINE static Floats added(Floats a, Floats b, Floats sum) { return multiplied_sum(a, b, sum); }
};

/// c[i][0..kPanel) = (add ? c : 0) + the sum over d < depth of a(i, d) * b[d][0..kPanel), for kRows rows. `b_row` and
/// `c_row` lead from row to row.
template <int kRows, class Terms>
[[gnu::noinline]] void product_of_rows(Factors a, const float* b, int64_t b_row, int64_t depth, float* c, int64_t c_row,
                                       bool add) {
  constexpr int kVectors = 2;
  for (int64_t column = 0; column < kPanel; column += int64_t{kVectors} * kLanes) {
    Floats sum[kRows][kVectors];
    unrolled<kRows * kVectors>([&](auto i) TRAINRUN_INLINE {
      const float* const at = c + i / kVectors * c_row + column + i % kVectors * kLanes;
      sum[i / kVectors][i % kVectors] = add ? load_all(at) : Floats{};
    });
    const float* left = a.at;
    const float* right = b + column;
#pragma GCC unroll 2
    for (int64_t d = 0; d < depth; ++d, left += a.column, right += b_row) {
      const Floats right0 = load_all(right);
      const Floats right1 = load_all(right + kLanes);
      unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
        const Floats factor = all_of(left[i * a.row]);
        sum[i][0] = Terms::added(factor, right0, sum[i][0]);
        sum[i][1] = Terms::added(factor, right1, sum[i][1]);
      });
    }
    unrolled<kRows * kVectors>([&](auto i) TRAINRUN_INLINE {
      store_all(c + i / kVectors * c_row + column + i % kVectors * kLanes, sum[i / kVectors][i % kVectors]);
    });
  }
}

/// The same for any number of rows.
template <class Terms = FloatTerms>
void product_of_panel(int64_t rows, Factors a, const float* b, int64_t b_row, int64_t depth, float* c, int64_t c_row,
                      bool add) {
  int64_t i = 0;
  const auto some = [&](auto count) {
    for (; i + count <= rows; i += count) {
      product_of_rows<count, Terms>({a.at + i * a.row, a.row, a.column}, b, b_row, depth, c + i * c_row, c_row, add);
    }
  };
  some(Constant<kMostRows>{});
  if constexpr (kMostRows > 8) some(Constant<8>{});
  some(Constant<4>{});
  some(Constant<2>{});
  some(Constant<1>{});
}

}  // namespace
}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
