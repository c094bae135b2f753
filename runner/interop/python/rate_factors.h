#pragma once

#include <string>

#include "runner/interop/python/source_file.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// Whether layers have learning rates of their own: by `lr_scale`, or by the optimizer's `layer_decay`.
bool has_rate_factors(const Recipe& recipe);

/// An expression of the groups of `optimizer`, whose layers have rates of their own; what it calls is added to the file.
/// `rules`: the recipe's param_groups as a Python list: "PARAMETER_GROUPS" or "[]".
std::string groups_with_rate_factors(const Recipe& recipe, const std::string& rules, SourceFile& file);

}  // namespace trainrun::python
