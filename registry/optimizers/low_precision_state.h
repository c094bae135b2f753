#pragma once

#include "registry/optimizer.h"

namespace trainrun {

/// Keeps the state that `optimizer` has in float32 as bfloat16 between steps, which halves it while the next step's
/// activations need memory; it computes in float32. Rounding is stochastic (Source: Gupta et al. 2015, "Deep Learning
/// with Limited Numerical Precision"). `inputs`: what it was built with.
std::unique_ptr<Optimizer> with_low_precision_state(std::unique_ptr<Optimizer> optimizer,
                                                    const OptimizerInputs& inputs);

}  // namespace trainrun
