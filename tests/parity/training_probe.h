#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "registry/catalog.h"
#include "registry/tensors/files/safetensors.h"

namespace trainrun {

/// Trains the recipe at `path` to its end, in this process. `state` gets the weights; returns the steps done
/// and the signal that stopped it, if any: {"steps": 12, "signal": 0}. The losses are in the run's metrics.jsonl.
/// `device`: "cuda:0" for the imagined GPU, or "" for what the recipe says. A recipe that reports to GpuWaits gets
/// "waits" as well: how often the host had waited for that GPU by the end of each step. "bytes_sent":
/// how many bytes of tensors went to it.
nlohmann::json train_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                            NamedTensors& state, const std::string& device);

}  // namespace trainrun
