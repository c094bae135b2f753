#pragma once

#include <memory>

#include "registry/graph/graph.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// Builds `layers` for `inputs`. Sizes are found in the shape mode first, so a recipe that does not fit fails before
/// memory is taken; within the shape mode the result has no memory either. Throws RecipeError with the layer's place,
/// both shapes and both layers where something does not fit or a name is unknown.
std::shared_ptr<Graph> build_graph(const LayerList& layers, const LayerInputs& inputs);

/// The same for all the layers of a recipe. If there is but one, which is a whole model of Python's and has no name, the
/// state names are that model's.
std::shared_ptr<Graph> build_model_graph(const LayerList& layers, const LayerInputs& inputs);

}  // namespace trainrun
