#pragma once

#include <vector>

#include "registry/graph/graph.h"
#include "registry/graph/onnx_graph.h"

namespace trainrun {

/// Writes what the graph computes in evaluation. `inputs`: those of the graph, by their names. Its outputs are called
/// "output", "output_1", …. Throws RecipeError, which lists all layers that have no form, or not for these options;
/// layers whose outputs lead to none of the graph's are passed over.
OnnxGraph onnx_graph_of(const Graph& graph, const std::vector<OnnxForm::Input>& inputs, const NamedTensors& state);

}  // namespace trainrun
