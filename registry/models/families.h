#pragma once

#include "registry/kinds/layer.h"

namespace trainrun {

/// Adds the registered models, each one layer of a recipe of this room.
void add_model_families(LayerRegistry& registry);

/// All components that come with trainrun, which models list. Defined above this room, in registry/builtins.cpp.
const Catalog& builtin_catalog();

}  // namespace trainrun
