#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

namespace trainrun::kernels {

constexpr int64_t kNumbersOfThread = int64_t{1} << 14;  // fewer are not worth one
/// Parts of rows whose sums are apart: as many for any number of threads, so that sums do not depend on it.
constexpr int64_t kMostParts = 32;

/// Calls call(begin, end, part) for at most as many parts of [0, size) as there are threads, on these.
template <class Call>
void in_parts(int64_t size, int64_t parts, const Call& call) {
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) call(size * part / parts, size * (part + 1) / parts, part);
  });
}

}  // namespace trainrun::kernels
