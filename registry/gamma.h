#pragma once

#include "registry/sample_draws.h"

namespace trainrun {

/// The logarithm of a number drawn from Gamma(shape, 1), `shape` > 0; the number itself may be too small for a double.
double log_gamma(RandomStream& random, double shape);

}  // namespace trainrun
