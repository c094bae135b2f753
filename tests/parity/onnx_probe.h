#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tests/parity/probe_request.h"

namespace trainrun {

/// Writes a list of one layer, built from `seed` for "input.NAME", as ONNX to "path" (with "whole" it is all of a
/// recipe's layers, with "external" its weights lie beside it). Vectors among the weights, and running statistics, are
/// not what they are at first. Gives what it computes in evaluation of the "input" as "evaluated", and of each of
/// "batches" as its name: "evaluated.0".
nlohmann::json run_onnx(Request& request);

/// The same of a recipe's model, with its first weights. What it computes of batches of each of "sizes" as SIZE.0, …; the
/// batches, which are drawn, as "batchSIZE.NAME".
nlohmann::json run_onnx_recipe(Request& request);

}  // namespace trainrun
