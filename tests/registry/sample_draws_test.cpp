#include "registry/kinds/sample_draws.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/doctest.h"

namespace trainrun {
namespace {

constexpr int64_t kMany = 20000;

/// Kolmogorov and Smirnov's distance of `numbers` to the distribution `cdf`, times the root of their number: above 1.95
/// once in a thousand samples.
template <class Cdf>
double distance(std::vector<double> numbers, const Cdf& cdf) {
  std::sort(numbers.begin(), numbers.end());
  const auto n = static_cast<double>(numbers.size());
  double most = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double at = cdf(numbers[i]);
    most = std::max({most, at - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - at});
  }
  return most * std::sqrt(n);
}

/// The first number of each of many samples' streams, as `draw` makes it.
template <class Draw>
std::vector<double> firsts(const Draw& draw, const DrawKey& key = {7, 3, 1}) {
  std::vector<int64_t> samples(kMany);
  for (int64_t i = 0; i < kMany; ++i) samples[static_cast<size_t>(i)] = i;
  const SampleDraws draws(key, samples);
  std::vector<double> numbers;
  for (int64_t i = 0; i < kMany; ++i) {
    RandomStream random = draws.of(i);
    numbers.push_back(draw(random));
  }
  return numbers;
}

double uniform_cdf(double x) { return x; }
double uniform(RandomStream& random) { return random.uniform(); }

TEST_CASE("a stream is the SplitMix64 of its key") {
  RandomStream random(1234567);  // the numbers of splitmix64.c and of Java's SplittableRandom for that seed
  CHECK(random.bits() == 6457827717110365317U);
  CHECK(random.bits() == 3203168211198807973U);
  CHECK(random.bits() == 9817491932198370423U);
}

TEST_CASE("a sample's stream depends on seed, epoch, transform and its number, not on its row") {
  const SampleDraws draws({1, 2, 3}, {10, 11, 12});
  const SampleDraws other_rows({1, 2, 3}, {12, 5, 10});
  CHECK(draws.of(0).bits() == other_rows.of(2).bits());
  CHECK(draws.of(2).bits() == other_rows.of(0).bits());
  std::set<uint64_t> first = {draws.of(0).bits(), draws.of(1).bits()};
  for (const DrawKey& key :
       {DrawKey{2, 2, 3}, DrawKey{1, 3, 3}, DrawKey{1, 2, 4}, DrawKey{1, 3, 2}, DrawKey{2, 1, 3}}) {
    first.insert(SampleDraws(key, {10}).of(0).bits());
  }
  CHECK(first.size() == 7);
}

TEST_CASE("it is known whether anything was drawn") {
  const SampleDraws draws({}, {0});
  CHECK_FALSE(draws.used());
  draws.of(0);
  CHECK(draws.used());
}

TEST_CASE("numbers have their distributions, over the samples as along a stream") {
  CHECK(distance(firsts(uniform), uniform_cdf) < 1.95);
  CHECK(distance(firsts(uniform, {0, 0, 0}), uniform_cdf) < 1.95);
  const auto normal_cdf = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  CHECK(distance(firsts([](RandomStream& random) { return random.normal(); }), normal_cdf) < 1.95);
  RandomStream random(1);
  std::vector<double> along;
  for (int64_t i = 0; i < kMany; ++i) along.push_back(random.normal());
  CHECK(distance(along, normal_cdf) < 1.95);
  int64_t counts[7] = {};
  for (int64_t i = 0; i < 7000; ++i) ++counts[random.integer(7)];
  for (const int64_t count : counts) CHECK(std::abs(count - 1000) < 150);  // 5 standard deviations
  CHECK(random.integer(1) == 0);
  const double between = random.uniform(-3, -2);
  CHECK(between >= -3);
  CHECK(between < -2);
}

TEST_CASE("Beta(alpha, alpha) is the uniform, the semicircle's, the arcsine's distribution") {
  const auto beta = [](double alpha) { return firsts([alpha](RandomStream& random) { return random.beta(alpha); }); };
  CHECK(distance(beta(1), uniform_cdf) < 1.95);
  CHECK(distance(beta(0.5), [](double x) { return 2 * std::asin(std::sqrt(x)) / M_PI; }) < 1.95);
  CHECK(distance(beta(2), [](double x) { return x * x * (3 - 2 * x); }) < 1.95);
  for (const double alpha : {1e-4, 0.2, 1e4}) {
    double sum = 0;
    double squares = 0;
    for (const double share : beta(alpha)) {
      REQUIRE(share >= 0);
      REQUIRE(share <= 1);
      sum += share - 0.5;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    CHECK(std::abs(sum / kMany) < 5 * std::sqrt(variance / kMany));
    CHECK(squares / kMany == doctest::Approx(variance).epsilon(0.06));
  }
}

}  // namespace
}  // namespace trainrun
