#pragma once

#include <nlohmann/json.hpp>

#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// What one part of a run keeps in a checkpoint: tensors by name, and values, which are null if there are none.
struct Snapshot {
  NamedTensors tensors;
  nlohmann::json values;
};

}  // namespace trainrun
