#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "registry/catalog.h"
#include "registry/files/safetensors.h"

namespace trainrun {

/// Trains the recipe at `path` to its end, in this process. `state` gets the weights; returns the steps done
/// and the signal that stopped it, if any: {"steps": 12, "signal": 0}. The losses are in the run's metrics.jsonl.
nlohmann::json train_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                            NamedTensors& state);

}  // namespace trainrun
