#if defined(__x86_64__)

#include "registry/kernels/product_blocks.h"

// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming): see README.md

namespace trainrun::kernels {
namespace {

/// A unit is a number.
struct SingleFloat {
  static constexpr int64_t kNumbers = 1;
  using Number = float;

  /// Up to 16 numbers that lie side by side, and 16 from the one at `kLanes` on.
  TRAINRUN_INLINE static TwoVectors side_by_side(const ProductFactor& of, int64_t at, int64_t /*step*/,
                                                 int64_t /*numbers*/, int64_t count) {
    return {following(of, at, count), following(of, at + kLanes, count - kLanes)};
  }
  TRAINRUN_INLINE static __m512i following(const ProductFactor& of, int64_t at, int64_t count) {
    return _mm512_maskz_loadu_epi32(lowest(count), static_cast<const float*>(of.at) + at);
  }
  TRAINRUN_INLINE static Floats added(Floats a, Floats b, Floats sum) { return multiplied_sum(a, b, sum); }
  TRAINRUN_INLINE static void put(const ProductResult& to, int64_t at, Floats sums, int64_t count) {
    put_floats(to, at, sums, count);
  }
};

}  // namespace

void multiply_part_fp32(const ProductShape& shape, const ProductFactor& a, const ProductFactor& b,
                        const ProductPart& part, const ProductResult& to, uint32_t* scratch, bool is_packed) {
  multiply_part<SingleFloat>(shape, a, b, part, to, scratch, is_packed);
}

}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming)

#endif
