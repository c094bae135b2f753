#pragma once

#include "registry/graph/graph.h"
#include "runner/loggers/tensor_records.h"

namespace trainrun {

/// The model's layers, those within others included, for a logger that draws them. Layers are named as in the state dict,
/// with slashes, by which TensorBoard groups them.
DrawnGraph drawn_model(const Graph& graph);

}  // namespace trainrun
