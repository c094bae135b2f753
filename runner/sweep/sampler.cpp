#include "runner/sweep/sampler.h"

#include <cmath>
#include <numbers>

namespace trainrun {
namespace {

std::mt19937_64 generator_of(uint64_t seed, int64_t trial) {
  std::seed_seq words = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(trial),
                         static_cast<uint32_t>(static_cast<uint64_t>(trial) >> 32)};
  return std::mt19937_64(words);
}

}  // namespace

TrialRandom::TrialRandom(uint64_t seed, int64_t trial) : generator_(generator_of(seed, trial)) {}

// The standard library's distributions differ from one to the next; its generators do not.
double TrialRandom::uniform() {
  constexpr double kStep = 0x1p-53;
  return static_cast<double>(generator_() >> 11) * kStep;
}

double TrialRandom::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

Point random_point(const SearchSpace& space, TrialRandom& random) {
  Point point;
  for (const Dimension& dimension : space.dimensions) {
    const double drawn = random.uniform();
    if (dimension.kind == Dimension::Kind::kChoices) {
      point.push_back(std::floor(drawn * static_cast<double>(dimension.choices.size())));
      continue;
    }
    const double margin = dimension.is_integer() ? 0.5 : 0;  // so that the ends are as likely as the others
    double low = dimension.low - margin, high = dimension.high + margin;
    if (dimension.is_logarithmic()) low = std::log(low), high = std::log(high);
    const double value = low + drawn * (high - low);
    point.push_back(dimension.settled(dimension.is_logarithmic() ? std::exp(value) : value));
  }
  return point;
}

}  // namespace trainrun
