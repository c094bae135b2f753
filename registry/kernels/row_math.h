#pragma once

#include "registry/kernels/stored_floats.h"
#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays): see README.md

// What a softmax over rows needs. For sources named _simd.cpp (see README.md): all is in an unnamed namespace.

namespace trainrun::kernels {
namespace {

/// The first `count` numbers, and `rest` in the place of the others.
TRAINRUN_INLINE inline Floats only_first(Floats x, int64_t count, float rest) {
  Ints number{};
  for (int i = 0; i < kLanes; ++i) number[i] = i;
  return number < all_of(static_cast<int32_t>(lanes_of(count))) ? x : all_of(rest);
}

TRAINRUN_INLINE inline float sum_of(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(x);  // halves are added, as below
#else
  float lanes[kLanes];
  store_all(lanes, x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
#endif
}
TRAINRUN_INLINE inline float largest_of(Floats x) {
  float lanes[kLanes];
  store_all(lanes, x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  }
  return lanes[0];
}

/// e to the power of x <= 88, right to 1e-7 of it; 0 below -87, where results would be denormal. NaN stays one. Source:
/// Moshier's Cephes, expf: x is a multiple of ln 2 and a rest, of whose power it has a polynomial.
TRAINRUN_INLINE inline Floats exponential(Floats x) {
  constexpr float kLog2E = 1.44269504088896341F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRounding = 12582912;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const Floats shifted = multiplied_sum(x, all_of(kLog2E), all_of(kRounding));
  const Floats whole = shifted - all_of(kRounding);
  Floats rest = multiplied_sum(whole, all_of(-kLn2High), x);
  rest = multiplied_sum(whole, all_of(-kLn2Low), rest);
  Floats power = all_of(1.9875691500e-4F);
  power = multiplied_sum(power, rest, all_of(1.3981999507e-3F));
  power = multiplied_sum(power, rest, all_of(8.3334519073e-3F));
  power = multiplied_sum(power, rest, all_of(4.1665795894e-2F));
  power = multiplied_sum(power, rest, all_of(1.6666665459e-1F));
  power = multiplied_sum(power, rest, all_of(5.0000001201e-1F));
  power = multiplied_sum(power * rest, rest, rest) + all_of(1.0F);
  // The lowest bits of `shifted` are the whole number: added to the exponent.
  const Ints exponent = reinterpret_cast<Ints>(shifted) << 23;
  const Floats result = reinterpret_cast<Floats>(reinterpret_cast<Ints>(power) + exponent);
  return x < all_of(-87.0F) ? Floats{} : x == x ? result : x;
}

}  // namespace
}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays)
