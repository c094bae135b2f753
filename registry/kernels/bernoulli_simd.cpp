#include "registry/kernels/bernoulli_simd.h"

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

inline void draw(Twister& twister, uint32_t* to, int64_t count) {
  while (count > 0) {
    if (twister.left == 1) {
      twist(twister.state);
      twister.left = kTwisterNumbers + 1;
      twister.next = 0;
    }
    const int64_t now = count < twister.left - 1 ? count : twister.left - 1;
    temper(twister.state + twister.next, to, now);
    twister.left -= now;
    twister.next += now;
    to += now;
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

template <class T>
void fill_as(Twister& twister, uint64_t limit, uint64_t one, void* to, int64_t count) {
  constexpr int64_t kAtOnce = 1024;
  uint32_t random[2 * kAtOnce];  // NOLINT(modernize-avoid-c-arrays): see README.md
  T* const values = static_cast<T*>(to);
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t now = count - i < kAtOnce ? count - i : kAtOnce;
    draw(twister, random, 2 * now);
    compare(random, limit, static_cast<T>(one), values + i, now);
  }
}

}  // namespace

void bernoulli_fill(Twister& twister, uint64_t limit, One one, void* to, int64_t count) {
  if (one.bytes == 1) fill_as<uint8_t>(twister, limit, one.content, to, count);
  if (one.bytes == 2) fill_as<uint16_t>(twister, limit, one.content, to, count);
  if (one.bytes == 4) fill_as<uint32_t>(twister, limit, one.content, to, count);
  if (one.bytes == 8) fill_as<uint64_t>(twister, limit, one.content, to, count);
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
