#pragma once

#include <nlohmann/json_fwd.hpp>

#include "registry/kinds/layer.h"
#include "tests/parity/probe_request.h"

namespace trainrun {

/// Examples as the model's graph makes them: the sizes of `inputs`, but the batch.
LayerInputs examples_of(const TensorMap& inputs);

/// Names and shapes of what a list of one layer keeps, which is a whole model; with "layer_decay" what it makes of the
/// rate of each parameter.
nlohmann::json run_shapes(Request& request);

/// A list of one layer, built from `seed`: training forward and backward, then evaluation; in double precision where
/// "dtype" is "double". With "whole" it is all of a recipe's layers.
nlohmann::json run_layer(Request& request);

/// A loss of the "input.NAME", and their gradients.
nlohmann::json run_loss(Request& request);

/// Batch B's inputs are "B.0", "B.1", …. Also what comes of it when every other batch was another rank's.
nlohmann::json run_metric(Request& request);

}  // namespace trainrun
