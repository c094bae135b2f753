#include "runner/train/tensor_histograms.h"

#include <ATen/Functions.h>
#include <doctest/doctest.h>

#include <limits>
#include <numeric>

namespace trainrun {
namespace {

TEST_CASE("a histogram counts each finite number in the bucket whose limit it does not exceed") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor values =
      at::tensor({-2.0, -1e-12, 0.0, 1e-12, 1.05e-12, 3.0, 1e30, kInfinity, std::numeric_limits<double>::quiet_NaN()});
  const Histogram histogram = histogram_of("weights/a", values);
  CHECK(histogram.count == 7);
  CHECK(histogram.not_finite == 2);
  CHECK(histogram.min == -2);
  CHECK(histogram.max == 1e30);
  CHECK(histogram.sum_of_squares == doctest::Approx(1e60));
  REQUIRE(histogram.limits.size() == histogram.counts.size());
  CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 7);
  CHECK(histogram.counts.front() == 1);  // of -2
  CHECK(histogram.limits.front() < 0);
  CHECK(histogram.counts.back() == 1);  // of 1e30, beyond the last limit
  for (size_t i = 1; i < histogram.limits.size(); ++i) CHECK(histogram.limits[i - 1] < histogram.limits[i]);
}

TEST_CASE("a histogram of no finite number has no buckets") {
  const Histogram histogram = histogram_of("a", at::full({3}, std::numeric_limits<double>::infinity()));
  CHECK(histogram.count == 0);
  CHECK(histogram.not_finite == 3);
  CHECK(histogram.counts.empty());
}

}  // namespace
}  // namespace trainrun
