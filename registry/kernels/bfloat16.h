#pragma once

#include <cstdint>

// For sources named _simd.cpp (see README.md): all is in an unnamed namespace.

namespace trainrun::kernels {
namespace {

/// The bits of a bfloat16, in the lower half of `Bits`, for a float or for each of a vector of them: rounded to the
/// nearest, to the even one of two; NaN stays one. `Bits`: uint32_t, or as many of them.
template <class Bits, class Float>
__attribute__((always_inline)) inline Bits bfloat16_bits(Float values) {
  constexpr uint32_t kNan = 0x7fc0;
  const Bits bits = __builtin_bit_cast(Bits, values);
  const Bits rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  return values == values ? rounded : Bits{} + kNan;
}

}  // namespace
}  // namespace trainrun::kernels
