#pragma once

#include <string>

#include "registry/catalog.h"
#include "registry/language/value.h"

namespace trainrun {

struct Recipe;

/// A resolved recipe with every default written out: of its sections, and of each component that it names, bare names
/// becoming mappings. Loaded, it gives the same job. What follows from the data or from other values (`in_features`,
/// say) is left out, as are lists of names that are empty.
Value with_defaults(const Value& resolved, const Catalog& catalog);

/// The folder of the recipe's runs, relative to the current one: `output_dir`, or runs/NAME.
std::string output_folder(const Recipe& recipe);

}  // namespace trainrun
