#include "registry/kinds/sample_draws.h"

#include <ATen/native/Math.h>

#include <cmath>
#include <utility>

#include "registry/language/splitmix.h"

namespace trainrun {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // what splitmix64 adds first: the sequence's step
constexpr double kUnit = 0x1p-53;

}  // namespace

uint64_t RandomStream::bits() {
  const uint64_t value = splitmix64(state_);
  state_ += kGolden;
  return value;
}

double RandomStream::uniform() { return static_cast<double>(bits() >> 11) * kUnit; }

int64_t RandomStream::integer(int64_t below) {  // Lemire 2019, without the rejection: off by 2^-64 * below at most
  return static_cast<int64_t>(
      static_cast<uint64_t>((static_cast<unsigned __int128>(bits()) * static_cast<uint64_t>(below)) >> 64));
}

double RandomStream::normal() {
  return calc_ndtri((static_cast<double>(bits() >> 11) + 0.5) * kUnit);  // never 0 or 1, whose quantiles are infinite
}

/// Source: Marsaglia, Tsang 2000, "A simple method for generating gamma variables", with its section 6 for shapes
/// below 1: there Gamma(shape) is Gamma(shape + 1) * U^(1 / shape).
double RandomStream::log_gamma(double shape) {
  if (shape < 1) {
    const double log_uniform = std::log(1 - uniform());
    return log_gamma(shape + 1) + log_uniform / shape;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

double RandomStream::beta(double alpha) {
  const double first = log_gamma(alpha);
  const double second = log_gamma(alpha);
  return 1 / (1 + std::exp(second - first));
}

SampleDraws::SampleDraws(const DrawKey& key, std::vector<int64_t> numbers)
    : key_(splitmix64(key.seed)), numbers_(std::move(numbers)) {
  for (const int64_t part : {key.epoch, key.transform}) key_ = splitmix64(key_ ^ static_cast<uint64_t>(part));
}

SampleDraws SampleDraws::begun_at(uint64_t key, std::vector<int64_t> numbers) {
  SampleDraws draws;
  draws.key_ = key;
  draws.numbers_ = std::move(numbers);
  return draws;
}

SampleDraws SampleDraws::of_sample(int64_t row, int64_t step) const {
  return begun_at(splitmix64(key_ ^ static_cast<uint64_t>(step)), {numbers_[static_cast<size_t>(row)]});
}

SampleDraws SampleDraws::of_rows(const std::vector<int64_t>& rows) const {
  std::vector<int64_t> numbers;
  numbers.reserve(rows.size());
  for (const int64_t row : rows) numbers.push_back(numbers_[static_cast<size_t>(row)]);
  return begun_at(key_, std::move(numbers));
}

RandomStream SampleDraws::of(int64_t row) const {
  used_ = true;
  return RandomStream(splitmix64(key_ ^ static_cast<uint64_t>(numbers_[static_cast<size_t>(row)])));
}

}  // namespace trainrun
