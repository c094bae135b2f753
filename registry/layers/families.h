#pragma once

#include "registry/graph/fusion.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// Adds the layers of this room.
void add_layer_families(LayerRegistry& registry);
/// Adds the fusions of this room.
void add_fusion_families(FusionRegistry& registry);

}  // namespace trainrun
