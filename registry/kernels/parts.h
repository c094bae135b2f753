#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <functional>

namespace trainrun::kernels {

constexpr int64_t kNumbersOfThread = int64_t{1} << 14;  // fewer are not worth one
/// The fewest rows of so many numbers that are worth one.
inline int64_t rows_of_thread(int64_t numbers) { return std::max<int64_t>(1, kNumbersOfThread / numbers); }

/// Parts of rows whose sums are apart: as many for any number of threads, so that sums do not depend on it.
constexpr int64_t kMostParts = 32;

/// Calls call(begin, end, part) for at most as many parts of [0, size) as there are threads, on these.
template <class Call>
void in_parts(int64_t size, int64_t parts, const Call& call) {
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) call(size * part / parts, size * (part + 1) / parts, part);
  });
}

/// [features]: the sum of the rows [parts, features], from the first to the last. Of so few numbers an operation of ATen's
/// takes longer.
inline at::Tensor sum_of_parts(const float* rows, int64_t parts, int64_t features) {
  at::Tensor sum = at::empty({features}, at::kFloat);
  auto* const to = sum.mutable_data_ptr<float>();
  at::parallel_for(0, features, rows_of_thread(parts), [&](int64_t begin, int64_t end) {
    std::copy(rows + begin, rows + end, to + begin);
    for (int64_t part = 1; part < parts; ++part) {
      std::transform(to + begin, to + end, rows + part * features + begin, to + begin, std::plus<>());
    }
  });
  return sum;
}

}  // namespace trainrun::kernels
