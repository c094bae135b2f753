#pragma once

#include <vector>

#include "registry/graph/graph.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// The losses that read probabilities, or their logarithms, from a layer that gives any numbers: a Linear, say, without a
/// Sigmoid or LogSoftmax behind it. Layers of plugins, of which it is not known, are passed over.
std::vector<Problem> raw_outputs(const Recipe& recipe, const Graph& graph);

}  // namespace trainrun
