#pragma once

#include <cstdint>
#include <limits>

namespace trainrun {

// Numbers of a recipe may be as large as an int64; what is computed from them then stays at the largest one instead of
// turning negative.

/// How many pieces of `size` hold `count`; count >= 0, size >= 1.
inline int64_t ceil_divide(int64_t count, int64_t size) { return count / size + (count % size == 0 ? 0 : 1); }

/// a * b, both >= 0, or the largest number there is.
inline int64_t saturating_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

/// a + b, b >= 0, or the largest number there is.
inline int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

}  // namespace trainrun
