#include "registry/kernels/total_norm_simd.h"

#include "registry/kernels/vectors.h"

// NOLINTBEGIN(modernize-avoid-c-arrays): see README.md

namespace trainrun::kernels::TRAINRUN_CPU_PATH {

/// In float32 over some thousand numbers, then in float64.
double sum_of_squares(const float* from, int64_t count) {
  constexpr int kSums = 4;  // side by side, since one addition waits for the one before
  constexpr int64_t kAtOnce = int64_t{kSums} * kLanes, kStretch = 64 * kAtOnce;
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kStretch) {
    const int64_t end = begin + kStretch < count ? begin + kStretch : count;
    Floats sums[kSums] = {};
    for (int64_t i = begin; i < end; i += kAtOnce) {
      for (int s = 0; s < kSums; ++s) {
        const int64_t at = i + int64_t{s} * kLanes;
        const Floats x = at < end ? load(from + at, end - at) : Floats{};
        sums[s] = multiplied_sum(x, x, sums[s]);
      }
    }
    float lanes[kLanes];
    store_all(lanes, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

}  // namespace trainrun::kernels::TRAINRUN_CPU_PATH
// NOLINTEND(modernize-avoid-c-arrays)
