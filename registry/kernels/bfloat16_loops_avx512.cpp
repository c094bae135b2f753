#if defined(__x86_64__)

#include "registry/kernels/product_blocks.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

namespace trainrun::kernels {
namespace {

/// Up to 16 numbers as bfloat16, each in the lower half of a lane.
TRAINRUN_INLINE inline __m512i some_numbers(const ProductFactor& of, int64_t at, int64_t count) {
  if (of.is_bfloat16) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lowest(count), static_cast<const Bfloat16*>(of.at) + at));
  }
  const __m512 numbers = _mm512_maskz_loadu_ps(lowest(count), static_cast<const float*>(of.at) + at);
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
}

/// A unit is a pair of bfloat16: the processor adds both their products to a sum of float32 at once.
struct BfloatPair {
  static constexpr int64_t kNumbers = 2;
  using Number = Bfloat16;  // of a

  /// Pairs of up to 16 columns, the numbers at `at` and `step` behind it; the last number of an odd depth has no other.
  TRAINRUN_INLINE static __m512i side_by_side(const ProductFactor& of, int64_t at, int64_t step, int64_t numbers,
                                              int64_t count) {
    const __m512i low = some_numbers(of, at, count);
    if (numbers < kNumbers) return low;
    return _mm512_or_si512(low, _mm512_slli_epi32(some_numbers(of, at + step, count), 16));
  }

  /// Up to 16 pairs that lie in memory one after the other; `count` numbers.
  TRAINRUN_INLINE static __m512i following(const ProductFactor& of, int64_t at, int64_t count) {
    if (of.is_bfloat16) {
      const auto mask =
          static_cast<__mmask32>(count >= int64_t{2} * kLanes ? ~uint32_t{0} : (uint32_t{1} << count) - 1);
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
