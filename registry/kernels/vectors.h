#pragma once

#include <cstddef>
#include <cstdint>

#include "registry/kernels/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// As many numbers at a time as the instructions compute that a source is compiled for, by the compilers' vector types:
// +, ==, > and ?: go number by number. For sources named _simd.cpp (see README.md): all is in an unnamed namespace.

namespace trainrun::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));  // a comparison of either gives these: all bits or none
using Bytes = uint8_t __attribute__((vector_size(kLanes)));
// In memory. A typedef, since clang does not hear of an alignment in a `using`.
typedef float AnywhereFloats
    __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));  // NOLINT(modernize-use-using)

inline Ints all_of(int32_t number) { return number - Ints{}; }

/// The larger of two numbers; b where they are equal, or one of them is NaN.
inline Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline Floats all_of(float number) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(number);
#elif defined(__AVX2__)
  return _mm256_set1_ps(number);
#else
  return Floats{number, number, number, number};
#endif
}

/// a * b + c, rounded once where the instructions can.
inline Floats multiplied_sum(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

inline Floats load_all(const float* from) { return *reinterpret_cast<const AnywhereFloats*>(from); }
inline void store_all(float* to, Floats values) { *reinterpret_cast<AnywhereFloats*>(to) = values; }

// --- some of them: the first `count`, none where it is negative, all where it is kLanes or above

inline int64_t lanes_of(int64_t count) { return count < 0 ? 0 : count > kLanes ? kLanes : count; }

#if defined(__AVX512F__)
inline __mmask16 lowest(int64_t count) { return static_cast<__mmask16>((uint32_t{1} << lanes_of(count)) - 1); }
#elif defined(__AVX2__)
inline __m256i lowest(int64_t count) {
  alignas(32) static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits + kLanes - lanes_of(count)));
}
#endif

/// Zeros after the first `count`.
inline Floats load(const float* from, int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(lowest(count), from);
#else
  if (count >= kLanes) return *reinterpret_cast<const AnywhereFloats*>(from);
#if defined(__AVX2__)
  return _mm256_maskload_ps(from, lowest(count));
#else
  Floats values{};
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return values;
#endif
#endif
}

inline void store(float* to, Floats values, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, lowest(count), values);
#else
  if (count >= kLanes) {  // masked stores are slow on some processors
    *reinterpret_cast<AnywhereFloats*>(to) = values;
    return;
  }
#if defined(__AVX2__)
  if (count <= 0) return;
  __m128 part = _mm256_castps256_ps128(values);
  if ((count & 4) != 0) {
    _mm_storeu_ps(to, part);
    part = _mm256_extractf128_ps(values, 1);
    to += 4;
  }
  if ((count & 2) != 0) {
    _mm_storel_pi(reinterpret_cast<__m64*>(to), part);
    part = _mm_movehl_ps(part, part);
    to += 2;
  }
  if ((count & 1) != 0) _mm_store_ss(to, part);
#else
  for (int64_t i = 0; i < count; ++i) to[i] = values[i];
#endif
#endif
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// Copies of a length that only the call knows would go through memory, and wait for it.

/// `count` bytes, and zeros: all 8 where `count` is above that.
inline uint64_t first_bytes(const uint8_t* from, int64_t count) {
  uint64_t bytes = 0;
  if (count >= kLanes) {
    __builtin_memcpy(&bytes, from, sizeof bytes);
    return bytes;
  }
  if (count <= 0) return 0;
  unsigned shift = 0;
  if ((count & 4) != 0) {
    uint32_t four = 0;
    __builtin_memcpy(&four, from, sizeof four);
    bytes = four;
    from += sizeof four;
    shift = 32;
  }
  if ((count & 2) != 0) {
    uint16_t two = 0;
    __builtin_memcpy(&two, from, sizeof two);
    bytes |= uint64_t{two} << shift;
    from += sizeof two;
    shift += 16;
  }
  if ((count & 1) != 0) bytes |= uint64_t{*from} << shift;
  return bytes;
}

inline void put_bytes(uint8_t* to, uint64_t bytes, int64_t count) {
  if (count >= kLanes) {
    __builtin_memcpy(to, &bytes, sizeof bytes);
    return;
  }
  if (count <= 0) return;
  if ((count & 4) != 0) {
    const auto four = static_cast<uint32_t>(bytes);
    __builtin_memcpy(to, &four, sizeof four);
    to += sizeof four;
    bytes >>= 32;
  }
  if ((count & 2) != 0) {
    const auto two = static_cast<uint16_t>(bytes);
    __builtin_memcpy(to, &two, sizeof two);
    to += sizeof two;
    bytes >>= 16;
  }
  if ((count & 1) != 0) *to = static_cast<uint8_t>(bytes);
}
#endif

inline Ints load_bytes(const uint8_t* from, int64_t count) {
#if defined(__AVX512F__)
  return reinterpret_cast<Ints>(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lowest(count), from)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(first_bytes(from, count)))));
#else
  Bytes bytes{};
  __builtin_memcpy(&bytes, from, static_cast<std::size_t>(lanes_of(count)));
  return __builtin_convertvector(bytes, Ints);
#endif
}

/// The numbers' lowest bytes.
inline void store_bytes(uint8_t* to, Ints numbers, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_cvtepi32_storeu_epi8(to, lowest(count), reinterpret_cast<__m512i>(numbers));
#elif defined(__AVX2__)  // g++ takes each number out of the vector
  const auto all = reinterpret_cast<__m256i>(numbers);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  put_bytes(to, static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words))), count);
#else
  const Bytes bytes = __builtin_convertvector(numbers, Bytes);
  __builtin_memcpy(to, &bytes, static_cast<std::size_t>(lanes_of(count)));
#endif
}

// --- their order

template <int... kNumbers>
struct Numbers {};
template <int kCount, int... kNumbers>
struct CountTo : CountTo<kCount - 1, kCount - 1, kNumbers...> {};
template <int... kNumbers>
struct CountTo<0, kNumbers...> {
  using All = Numbers<kNumbers...>;
};

/// Lane i is number Order::of(i) of the 2 * kLanes numbers of a and b.
template <class Order, class Vector, int... kNumbers>
inline Vector shuffled(Vector a, Vector b, Numbers<kNumbers...>) {
  return __builtin_shufflevector(a, b, Order::of(kNumbers)...);
}
template <class Order, class Vector>
inline Vector shuffled(Vector a, Vector b) {
  return shuffled<Order>(a, b, typename CountTo<kLanes>::All{});
}

/// Every second number of each four of `a` and of `b`, as one instruction gives them: pairs 0 and 1, then those in the
/// middle, then 2 and 3, …; `in_order` puts them right.
template <int kFirst>
struct EverySecond {
  static constexpr int of(int i) { return i / 4 * 4 + kFirst + i % 2 * 2 + (i % 4 < 2 ? 0 : kLanes); }
};
inline Floats evens(Floats a, Floats b) { return shuffled<EverySecond<0>>(a, b); }
inline Floats odds(Floats a, Floats b) { return shuffled<EverySecond<1>>(a, b); }
struct PairsInOrder {
  static constexpr int of(int i) {
    const int half = i < kLanes / 2 ? 0 : 1, within = i - half * kLanes / 2;
    return within / 2 * 4 + half * 2 + within % 2;
  }
};
template <class Vector>
inline Vector in_order(Vector of_every_second) {
  return shuffled<PairsInOrder>(of_every_second, of_every_second);
}

/// a0, b0, a1, b1, …: the first half of them, and the second.
template <int kHalf>
struct Interleaved {
  static constexpr int of(int i) { return kHalf * kLanes / 2 + i / 2 + (i % 2) * kLanes; }
};
inline Floats interleaved_low(Floats a, Floats b) { return shuffled<Interleaved<0>>(a, b); }
inline Floats interleaved_high(Floats a, Floats b) { return shuffled<Interleaved<1>>(a, b); }

}  // namespace
}  // namespace trainrun::kernels
