#pragma once

#include "registry/kinds/transform.h"

namespace trainrun {

/// Adds the transforms of this room.
void add_transform_families(TransformRegistry& registry);

}  // namespace trainrun
