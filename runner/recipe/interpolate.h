#pragma once

#include <vector>

#include "registry/language/error.h"
#include "registry/language/value.h"

namespace trainrun {

/// Replaces every `${…}` in the scalars of a recipe, after bases and overrides are merged: `${name}` by another value
/// of the recipe, `${env:VAR:-default}` by the environment; `$${` becomes `${`. What cannot be replaced becomes a
/// problem and stays.
///
/// The bodies of `model.blocks` stay in source form, with their parameters' `${name}` and with `$${`, until a block is
/// used: registry/language/interpolation.h has the `substitute` for that.
Value interpolate(const Value& recipe, std::vector<Problem>& problems);

/// As `interpolate`, but all in source form (a literal `${` is `$${`), and with what of the environment may be a secret
/// left as `${env:…}`: every variable called like one (…TOKEN, …PASSWORD), and texts, but for paths of what is there,
/// in the sections where texts are free: dataset, logging, name, output_dir. What cannot be replaced stays. Numbers,
/// booleans and the names of components are put in, so that a run can be repeated from them.
Value interpolate_but_secrets(const Value& recipe);

}  // namespace trainrun
