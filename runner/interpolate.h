#pragma once

#include <vector>

#include "registry/error.h"
#include "registry/value.h"

namespace trainrun {

/// Replaces every `${…}` in the scalars of a recipe, after bases and overrides are merged: `${name}` by another value
/// of the recipe, `${env:VAR:-default}` by the environment; `$${` becomes `${`. What cannot be replaced becomes a
/// problem and stays.
///
/// The bodies of `model.blocks` stay in source form, with their parameters' `${name}` and with `$${`, until a block is
/// used: registry/interpolation.h has the `substitute` for that.
Value interpolate(const Value& recipe, std::vector<Problem>& problems);

}  // namespace trainrun
