#if defined(__x86_64__)

#include "registry/kernels/product_blocks.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

namespace trainrun::kernels {
namespace {

/// Numbers of two rows in turn, 16 of each from number kFirst of the 32 on.
template <int kFirst>
TRAINRUN_INLINE inline __m512i in_turn(__m512i row, __m512i next) {
  alignas(64) static constexpr struct Places {
    int16_t at[int64_t{2} * kLanes];
    constexpr Places() : at() {
      for (int i = 0; i < 2 * kLanes; ++i) at[i] = static_cast<int16_t>(kFirst + i / 2 + i % 2 * 2 * kLanes);
    }
  } kPlaces;
  return _mm512_permutex2var_epi16(row, _mm512_load_si512(kPlaces.at), next);
}

/// A unit is a pair of bfloat16: the processor adds both their products to a sum of float32 at once.
struct BfloatPair {
  static constexpr int64_t kNumbers = 2;
  using Number = Bfloat16;  // of a

  /// Pairs of up to 32 numbers that lie side by side, at `at` and `step` behind it: 16, and 16 from the one at `kLanes`
  /// on. The last number of an odd depth has no other.
  TRAINRUN_INLINE static TwoVectors side_by_side(const ProductFactor& of, int64_t at, int64_t step, int64_t numbers,
                                                 int64_t count) {
    if (of.is_bfloat16) {
      const __m512i row = following(of, at, count);
      const __m512i next = numbers < kNumbers ? __m512i{} : following(of, at + step, count);
      return {in_turn<0>(row, next), in_turn<kLanes>(row, next)};
    }
    return {rounded(of, at, step, numbers, count), rounded(of, at + kLanes, step, numbers, count - kLanes)};
  }
  /// Pairs of up to 16 numbers of float32.
  TRAINRUN_INLINE static __m512i rounded(const ProductFactor& of, int64_t at, int64_t step, int64_t numbers,
                                         int64_t count) {
    const float* const from = static_cast<const float*>(of.at) + at;
    const __m512 row = _mm512_maskz_loadu_ps(lowest(count), from);
    const __m512 next = numbers < kNumbers ? __m512{} : _mm512_maskz_loadu_ps(lowest(count), from + step);
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(next, row));
    return in_turn<0>(both, _mm512_alignr_epi64(both, both, 4));
  }

  /// Up to 16 pairs that lie in memory one after the other; `count` numbers.
  TRAINRUN_INLINE static __m512i following(const ProductFactor& of, int64_t at, int64_t count) {
    if (of.is_bfloat16) {
      const int64_t some = lesser(count < 0 ? 0 : count, int64_t{2} * kLanes);
      const auto mask = static_cast<__mmask32>((uint64_t{1} << some) - 1);
      return _mm512_maskz_loadu_epi16(mask, static_cast<const Bfloat16*>(of.at) + at);
    }
    const float* const from = static_cast<const float*>(of.at) + at;
    const __m512 first = _mm512_maskz_loadu_ps(lowest(count), from);
    const __m512 second = count > kLanes ? _mm512_maskz_loadu_ps(lowest(count - kLanes), from + kLanes) : __m512{};
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  }

  TRAINRUN_INLINE static Floats added(Floats a, Floats b, Floats sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }

  TRAINRUN_INLINE static void put(const ProductResult& to, int64_t at, Floats sums, int64_t count) {
    if (to.is_bfloat16) {
      const auto numbers = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sums));
      _mm256_mask_storeu_epi16(static_cast<Bfloat16*>(to.at) + at, lowest(count), numbers);
    } else {
      put_floats(to, at, sums, count);
    }
  }
};

}  // namespace

void multiply_part_bf16(const ProductShape& shape, const ProductFactor& a, const ProductFactor& b,
                        const ProductPart& part, const ProductResult& to, uint32_t* scratch, bool is_packed) {
  multiply_part<BfloatPair>(shape, a, b, part, to, scratch, is_packed);
}

}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)

#endif
