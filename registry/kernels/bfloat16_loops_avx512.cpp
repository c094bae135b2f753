#if defined(__x86_64__)

#include "registry/kernels/bfloat16_loops.h"
#include "registry/kernels/small_products.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

namespace trainrun::kernels {
namespace {

constexpr int64_t kStrip = PairedProduct::kStrip, kColumns = PairedProduct::kColumns;
static_assert(kLanes == 16 && kColumns == int64_t{2} * kLanes && kStrip <= kLanes);

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

/// A panel of a matrix whose rows lie one after the other.
void pack_rows_of_panel(const PairedProduct& shape, const PairedFactor& b, int64_t first, uint32_t* to) {
  for (int64_t pair = 0; pair < shape.pairs(); ++pair, to += kColumns) {
    const int64_t even = 2 * pair * b.row + first;
    for (int64_t j = 0; j < kColumns; j += kLanes) {
      const __m512i pairs =
          some_pairs(b, even + j, even + b.row + j, 2 * pair + 1 < shape.depth, shape.columns - first - j);
      _mm512_storeu_si512(to + j, pairs);
    }
  }
}

/// A panel of a matrix whose columns do.
void pack_columns_of_panel(const PairedProduct& shape, const PairedFactor& b, int64_t first, uint32_t* to) {
  for (int64_t j = 0; j < kColumns; j += kLanes) {
    for (int64_t pair = 0; pair < shape.pairs(); pair += kLanes) {
      Floats square[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) {
        const int64_t column = first + j + k;
        square[k] =
            column < shape.columns
                ? reinterpret_cast<Floats>(following_pairs(b, column * b.column + 2 * pair, shape.depth - 2 * pair))
                : Floats{};
      }
      transpose(square);
      for (int64_t k = 0; k < lesser(kLanes, shape.pairs() - pair); ++k) {
        _mm512_storeu_ps(to + (pair + k) * kColumns + j, square[k]);
      }
    }
  }
}

TRAINRUN_INLINE inline void put_sums(const PairedResult& to, int64_t at, Floats sums, Floats bias, int64_t count) {
  if (to.is_bfloat16) {
    const auto numbers = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sums + bias));
    _mm256_mask_storeu_epi16(static_cast<Bfloat16*>(to.at) + at, lowest(count), numbers);
  } else {
    store(static_cast<float*>(to.at) + at, sums + bias, count);
  }
}

/// kRows rows of a panel, from `row` and `column` of the product on.
template <int kRows>
[[gnu::noinline]] void multiply_rows(const PairedProduct& shape, const PairedRows& a, const uint32_t* b,
                                     const PairedResult& to, int64_t row, int64_t column) {
  Floats sum[kRows][2];
  unrolled<kRows>([&](auto i) TRAINRUN_INLINE { sum[i][0] = sum[i][1] = Floats{}; });
  const uint32_t* left = a.at + row / kStrip * a.strip + row % kStrip * a.row;
  const int64_t pairs = shape.pairs();
#pragma GCC unroll 2
  for (int64_t d = 0; d < pairs; ++d, left += a.pair, b += kColumns) {
    const auto right0 = reinterpret_cast<__m512bh>(load_all(reinterpret_cast<const float*>(b)));
    const auto right1 = reinterpret_cast<__m512bh>(load_all(reinterpret_cast<const float*>(b) + kLanes));
    unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
      const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int32_t>(left[i * a.row])));
      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], factor, right0);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], factor, right1);
    });
  }
  const int64_t count = shape.columns - column;
  const Floats bias0 = to.bias == nullptr ? Floats{} : load(to.bias + column, count);
  const Floats bias1 = to.bias == nullptr ? Floats{} : load(to.bias + column + kLanes, count - kLanes);
  unrolled<kRows>([&](auto i) TRAINRUN_INLINE {
    const int64_t at = (row + i) * shape.columns + column;
    put_sums(to, at, sum[i][0], bias0, count);
    if (count > kLanes) put_sums(to, at + kLanes, sum[i][1], bias1, count - kLanes);
  });
}

void multiply_strip(const PairedProduct& shape, const PairedRows& a, const uint32_t* b, const PairedResult& to,
                    int64_t strip, int64_t column) {
  int64_t row = strip * kStrip;
  const int64_t end = lesser(row + kStrip, shape.rows);
  const auto some = [&](auto count) {
    for (; row + count <= end; row += count) multiply_rows<count>(shape, a, b, to, row, column);
  };
  some(Constant<kStrip>{});
  some(Constant<8>{});
  some(Constant<4>{});
  some(Constant<2>{});
  some(Constant<1>{});
}

}  // namespace

void pack_panels_bf16(const PairedProduct& shape, const PairedFactor& b, int64_t begin, int64_t end, uint32_t* to) {
  for (int64_t panel = begin; panel < end; ++panel) {
    uint32_t* const own = to + panel * shape.pairs() * kColumns;
    (b.column == 1 ? pack_rows_of_panel : pack_columns_of_panel)(shape, b, panel * kColumns, own);
  }
}

void pack_strips_bf16(const PairedProduct& shape, const PairedFactor& a, int64_t begin, int64_t end, uint32_t* to) {
  for (int64_t strip = begin; strip < end; ++strip) {
    uint32_t* own = to + strip * shape.pairs() * kStrip;
    const int64_t first = strip * kStrip, rows = lesser(kStrip, shape.rows - first);
    for (int64_t pair = 0; pair < shape.pairs(); ++pair, own += kStrip) {
      const int64_t even = 2 * pair * a.column + first;
      const __m512i pairs = some_pairs(a, even, even + a.column, 2 * pair + 1 < shape.depth, rows);
      _mm512_mask_storeu_epi32(own, lowest(kStrip), pairs);
    }
  }
}

void multiply_strips_bf16(const PairedProduct& shape, const PairedRows& a, const uint32_t* b, int64_t begin,
                          int64_t end, const PairedResult& to) {
  constexpr int64_t kPairsOfBlock = int64_t{1} << 16;  // of a: they stay in the L2 cache while the panels pass by
  const int64_t block = kPairsOfBlock / (shape.pairs() * kStrip) + 1;
  for (int64_t first = begin; first < end; first += block) {
    for (int64_t panel = 0; panel < shape.panels(); ++panel) {
      const uint32_t* const own = b + panel * shape.pairs() * kColumns;
      for (int64_t strip = first; strip < lesser(first + block, end); ++strip) {
        multiply_strip(shape, a, own, to, strip, panel * kColumns);
      }
    }
  }
}

}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)

#endif
