#pragma once

#include <cstdint>

#include "registry/kernels/simd.h"

// The loop of bernoulli.h, on bare memory. Declarations only: sources that are compiled for each kind of instructions
// include this header (see README.md).

namespace trainrun::kernels {

/// Numbers that the state of a Mersenne twister holds.
inline constexpr int64_t kTwisterNumbers = 624;

/// What at::mt19937 holds: the first of `left` numbers but one is state[next].
struct Twister {
  uint32_t* state;
  int64_t left, next;
};

/// How a 1 is written: its bytes (1, 2, 4 or 8) and their content.
struct One {
  int64_t bytes;
  uint64_t content;
};

/// Writes `count` values, each 1 where the 53 low bits of the next two random numbers, the high half first, are below
/// `limit`, else 0.
TRAINRUN_ON_EACH_PATH(void bernoulli_fill(Twister& twister, uint64_t limit, One one, void* to, int64_t count))

/// Passes over so many random numbers, two for each value.
TRAINRUN_ON_EACH_PATH(void bernoulli_skip(Twister& twister, int64_t numbers))

}  // namespace trainrun::kernels
