#pragma once

#include "registry/catalog.h"
#include "registry/language/value.h"

namespace trainrun {

/// A resolved recipe with every default written out: of its sections, and of each component that it names, bare names
/// becoming mappings. Loaded, it gives the same job. What follows from the data or from other values (`in_features`,
/// say) is left out, as are lists of names that are empty.
Value with_defaults(const Value& resolved, const Catalog& catalog);

}  // namespace trainrun
