#pragma once

#include <optional>

#include "registry/graph/fusion.h"
#include "registry/kernels/max_pool_window.h"

namespace trainrun {

/// The window of the layer named "pool", a MaxPool2d, if it may be computed with the one named "relu" before it.
std::optional<kernels::MaxPoolWindow> window_after_relu(const FusedLayers& layers);

}  // namespace trainrun
