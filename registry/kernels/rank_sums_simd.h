#pragma once

#include <cstdint>

#include "registry/kernels/simd.h"

// The loops of rank_sums.h, on bare memory. Declarations only: sources that are compiled for each kind of instructions
// include this header (see README.md).

namespace trainrun::kernels {

enum class NumberType { kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt8, kUInt8 };

/// The same stretch of `count` numbers of `num_from` ranks, and the places of their sum, which may be the same memory.
struct RankStretches {
  const void* const* from;
  int64_t num_from;
  void* const* to;
  int64_t num_to;
  int64_t count;
};

/// to[k][i] = from[0][i] / divisor + from[1][i] / divisor + …, added in this order. 16-bit numbers are added in float32
/// and rounded once; their quotients are rounded as well. Integers are not divided.
TRAINRUN_ON_EACH_PATH(void add_ranks(NumberType type, const RankStretches& ranks, double divisor))

}  // namespace trainrun::kernels
