#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "registry/kinds/sample_draws.h"

namespace trainrun {

using Bounds = std::array<double, 2>;  // least, most

/// A number drawn from the range, and rounded to float32, as torchvision draws numbers.
inline double draw_number(Bounds range, RandomStream& random) {
  return static_cast<float>(random.uniform(range[0], range[1]));
}

/// The sides of a window whose area is drawn as a share of `area`, and whose ratio, of the first side to the second, is
/// drawn evenly by its logarithm; as torchvision's RandomResizedCrop and RandomErasing draw and round them.
inline std::array<int64_t, 2> draw_sides(double area, Bounds scale, Bounds ratio, RandomStream& random) {
  const double target = area * random.uniform(scale[0], scale[1]);
  const double aspect = std::exp(random.uniform(std::log(ratio[0]), std::log(ratio[1])));
  const auto rounded = [](double side) { return static_cast<int64_t>(std::nearbyint(side)); };  // halves to even
  return {rounded(std::sqrt(target * aspect)), rounded(std::sqrt(target / aspect))};
}

}  // namespace trainrun
