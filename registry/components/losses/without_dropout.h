#pragma once

#include <torch/nn/module.h>

namespace trainrun {

/// The state of a loss that has its model trained without dropout: such a loss returns one from `build`. The layers
/// that draw at random in training then compute what they compute in evaluation; BatchNorm goes on learning its
/// statistics.
class WithoutDropout : public torch::nn::Module {};

}  // namespace trainrun
