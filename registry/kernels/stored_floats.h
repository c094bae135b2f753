#pragma once

#include "registry/kernels/bfloat16.h"
#include "registry/kernels/vectors.h"

#define TRAINRUN_INLINE __attribute__((always_inline))
// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): see README.md

// Vectors of floats in memory, as float32 or as bfloat16: all lanes, or the first `count`. For sources named _simd.cpp
// (see README.md): all is in an unnamed namespace.

namespace trainrun::kernels {
namespace {

using Bfloat16 = uint16_t;

/// Calls call(T{}) with the type of numbers in memory.
template <class Call>
inline void with_type(bool is_bfloat16, const Call& call) {
  if (is_bfloat16) {
    call(Bfloat16{});
  } else {
    call(float{});
  }
}

template <bool kAll>
TRAINRUN_INLINE inline Floats get(const float* from, int64_t count) {
  return kAll ? load_all(from) : load(from, count);
}
template <bool kAll>
TRAINRUN_INLINE inline void put(float* to, Floats values, int64_t count) {
  if (kAll) {
    store_all(to, values);
  } else {
    store(to, values, count);
  }
}

template <bool kAll>
TRAINRUN_INLINE inline Floats get(const Bfloat16* from, int64_t count) {
#if defined(__AVX512F__)
  const __m256i bits =
      kAll ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)) : _mm256_maskz_loadu_epi16(lowest(count), from);
  return reinterpret_cast<Floats>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
#else
  Bfloat16 some[kLanes] = {};
  if (kAll) {
    __builtin_memcpy(some, from, sizeof(some));
  } else {
    __builtin_memcpy(some, from, static_cast<std::size_t>(2 * lanes_of(count)));
  }
#if defined(__AVX2__)
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(some));
  return reinterpret_cast<Floats>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
#else
  Ints wide{};
  for (int i = 0; i < kLanes; ++i) wide[i] = static_cast<int32_t>(uint32_t{some[i]} << 16);
  return reinterpret_cast<Floats>(wide);
#endif
#endif
}

template <bool kAll>
TRAINRUN_INLINE inline void put(Bfloat16* to, Floats values, int64_t count) {
  using Bits = uint32_t __attribute__((vector_size(4 * kLanes)));
  const auto bits = bfloat16_bits<Bits>(values);
#if defined(__AVX512F__)
  const __m256i narrow = _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(bits));  // not as it stores: that takes longer
  if (kAll) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow);
  } else {
    _mm256_mask_storeu_epi16(to, lowest(count), narrow);
  }
#else
  Bfloat16 some[kLanes];
#if defined(__AVX2__)
  const auto all = reinterpret_cast<__m256i>(bits);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(some),
                   _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
#else
  for (int i = 0; i < kLanes; ++i) some[i] = static_cast<Bfloat16>(bits[i]);
#endif
  __builtin_memcpy(to, some, kAll ? sizeof(some) : static_cast<std::size_t>(2 * lanes_of(count)));
#endif
}

}  // namespace
}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
