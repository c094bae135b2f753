#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "registry/graph/graph.h"

namespace trainrun {

/// The padding, height before width, of a Conv2d that goes over its image point by point: of stride and dilation 1, one
/// group, and zeros around the image. Nothing for other layers.
std::optional<std::array<int64_t, 2>> unit_convolution_padding(const GraphNode& node);

/// Computes a convolution from x, the weight and the bias, which may be undefined, and what follows it in a fusion.
using ConvolutionKernel =
    std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)>;

/// The Conv2d by another kernel.
std::shared_ptr<const Operation> convolution_by(const Layer& conv, ConvolutionKernel kernel);

}  // namespace trainrun
