#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "registry/graph/graph.h"

namespace trainrun {

/// The padding, height before width, of a Conv2d of dilation 1 and one group, with zeros around the image, as many on both
/// sides. Nothing for other layers.
std::optional<std::array<int64_t, 2>> plain_convolution_padding(const GraphNode& node);
/// The same of one that goes over its image point by point: of stride 1.
std::optional<std::array<int64_t, 2>> unit_convolution_padding(const GraphNode& node);

/// Computes a convolution from x, the weight and the bias, which may be undefined, and what follows it in a fusion.
using ConvolutionKernel = std::function<Tensors(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)>;

/// The Conv2d by another kernel. `passing_on`: one that gives x as well (passing_on.h), if there is one.
std::shared_ptr<const Operation> convolution_by(const Layer& conv, ConvolutionKernel kernel,
                                                ConvolutionKernel passing_on = nullptr);

}  // namespace trainrun
