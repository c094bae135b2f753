#pragma once

#include <cstdint>

namespace trainrun {

/// One output of the SplitMix64 generator for state `x`: a bijection whose every output bit depends on every input bit.
/// Makes unrelated seeds from related numbers. Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
/// generators"; constants of Vigna's splitmix64.c.
constexpr uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace trainrun
