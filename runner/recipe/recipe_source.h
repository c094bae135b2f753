#pragma once

#include <string>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/value.h"

namespace trainrun {

struct ResolvedRecipe {
  Value value;                    // a mapping without `base`; null where a file could not be read or parsed
  std::vector<Problem> problems;  // of all stages, sorted
  std::string directory;          // of the recipe's file: where `plugins` are looked for first
  Value kept;                     // the value in source form, what may be a secret left as `${env:…}`
  std::string unreadable;         // of a file that is there, and that the system did not let us read: why; else ""
};

/// Reads a recipe: its bases merged first, then the command line's `key=value`, then every `${…}` replaced. Never
/// throws for what is wrong with a recipe. A scalar whose `${…}` could not be replaced stays as written; its place is
/// that of a problem.
ResolvedRecipe resolve_recipe(const std::string& path, const std::vector<std::string>& overrides);

/// A resolved recipe as it has to be written (with to_yaml) so that resolving the written file gives the same value
/// again: a literal `${` becomes `$${`. Bodies of `model.blocks` are in that form already.
Value escape_interpolation(const Value& resolved);

/// Whether two resolved recipes say the same job.
bool same_recipe(const Value& a, const Value& b);

}  // namespace trainrun
