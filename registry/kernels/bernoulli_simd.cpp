#include "registry/kernels/bernoulli_simd.h"

#if defined(__AVX512BW__) && defined(__AVX512DQ__)
#include <immintrin.h>
#endif

namespace trainrun::kernels::TRAINRUN_CPU_PATH {
namespace {

constexpr int64_t kFar = 397;
constexpr int64_t kNear = kTwisterNumbers - kFar;

inline uint32_t mixed(uint32_t u, uint32_t v) {
  const uint32_t bits = (u & 0x80000000U) | (v & 0x7fffffffU);
  return (bits >> 1) ^ ((0U - (v & 1U)) & 0x9908b0dfU);
}

/// Source: Matsumoto and Nishimura 1998, "Mersenne Twister" (MT19937), from one state to the next.
inline void twist(uint32_t* state) {
  for (int64_t i = 0; i < kNear; ++i) state[i] = state[i + kFar] ^ mixed(state[i], state[i + 1]);
  for (int64_t i = kNear; i < kTwisterNumbers - 1; ++i) state[i] = state[i - kNear] ^ mixed(state[i], state[i + 1]);
  state[kTwisterNumbers - 1] = state[kFar - 1] ^ mixed(state[kTwisterNumbers - 1], state[0]);
}

/// The random numbers that `count` numbers of the state stand for.
inline void temper(const uint32_t* state, uint32_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t y = state[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    to[i] = y ^ (y >> 18);
  }
}

/// Takes the next `count` numbers: take(from the first of them on, how many of them) for those of each state.
template <class Take>
inline void draw(Twister& twister, int64_t count, const Take& take) {
  while (count > 0) {
    if (twister.left == 1) {
      twist(twister.state);
      twister.left = kTwisterNumbers + 1;
      twister.next = 0;
    }
    const int64_t now = count < twister.left - 1 ? count : twister.left - 1;
    take(twister.state + twister.next, now);
    twister.left -= now;
    twister.next += now;
    count -= now;
  }
}

template <class T>
inline void compare(const uint32_t* random, uint64_t limit, T one, T* to, int64_t count) {
  constexpr uint64_t kBits53 = (uint64_t{1} << 53) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = ((uint64_t{random[2 * i]} << 32) | random[2 * i + 1]) & kBits53;
    to[i] = bits < limit ? one : T{0};
  }
}

#if defined(__AVX512BW__) && defined(__AVX512DQ__)
/// The same for bytes: comparisons give a bit for each value, and 64 bits choose 64 bytes.
inline void compare(const uint32_t* random, uint64_t limit, uint8_t one, uint8_t* to, int64_t count) {
  constexpr int64_t kAtOnce = 64, kVector = 8;
  const __m512i bits53 = _mm512_set1_epi64((int64_t{1} << 53) - 1),
                limits = _mm512_set1_epi64(static_cast<int64_t>(limit));
  const __m512i ones = _mm512_set1_epi8(static_cast<char>(one));
  int64_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    uint64_t chosen = 0;
#pragma GCC unroll 8
    for (int64_t j = 0; j < kAtOnce; j += kVector) {
      const __m512i low_first = _mm512_loadu_si512(random + 2 * (i + j));
      const __m512i bits = _mm512_and_si512(_mm512_ror_epi64(low_first, 32), bits53);
      chosen |= uint64_t{_mm512_cmplt_epu64_mask(bits, limits)} << j;
    }
    _mm512_storeu_si512(to + i, _mm512_maskz_mov_epi8(chosen, ones));
  }
  compare<uint8_t>(random + 2 * i, limit, one, to + i, count - i);
}
#endif

template <class T>
void fill_as(Twister& twister, uint64_t limit, uint64_t one, void* to, int64_t count) {
  constexpr int64_t kAtOnce = 1024;
  uint32_t random[2 * kAtOnce];  // NOLINT(modernize-avoid-c-arrays): see README.md
  T* const values = static_cast<T*>(to);
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t now = count - i < kAtOnce ? count - i : kAtOnce;
    uint32_t* to_random = random;
    draw(twister, 2 * now, [&](const uint32_t* from, int64_t some) {
      temper(from, to_random, some);
      to_random += some;
    });
    compare(random, limit, static_cast<T>(one), values + i, now);
  }
}

}  // namespace

void bernoulli_skip(Twister& twister, int64_t numbers) {
  draw(twister, numbers, [](const uint32_t*, int64_t) {});
}

void bernoulli_fill(Twister& twister, uint64_t limit, One one, void* to, int64_t count) {
  if (one.bytes == 1) fill_as<uint8_t>(twister, limit, one.content, to, count);
  if (one.bytes == 2) fill_as<uint16_t>(twister, limit, one.content, to, count);
  if (one.bytes == 4) fill_as<uint32_t>(twister, limit, one.content, to, count);
  if (one.bytes == 8) fill_as<uint64_t>(twister, limit, one.content, to, count);
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
