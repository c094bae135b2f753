#pragma once

#include "registry/kinds/dataset.h"

namespace trainrun {

/// Adds the data sets of this room.
void add_text_dataset_families(DatasetRegistry& registry);

}  // namespace trainrun
