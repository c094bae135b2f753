#include "registry/gamma.h"

#include <cmath>

namespace trainrun {

/// Source: Marsaglia, Tsang 2000, "A simple method for generating gamma variables", with its section 6 for shapes
/// below 1: there Gamma(shape) is Gamma(shape + 1) * U^(1 / shape).
double log_gamma(RandomStream& random, double shape) {
  if (shape < 1) {
    const double log_uniform = std::log(1 - random.uniform());
    return log_gamma(random, shape + 1) + log_uniform / shape;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

}  // namespace trainrun
