#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "registry/graph/graph.h"

namespace trainrun {

/// The padding, height before width, of a Conv2d that goes over its image point by point: of stride and dilation 1, one
/// group, and zeros around the image. Nothing for other layers.
std::optional<std::array<int64_t, 2>> unit_convolution_padding(const GraphNode& node);

}  // namespace trainrun
