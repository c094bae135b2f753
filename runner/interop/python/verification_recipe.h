#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "registry/language/value.h"

namespace trainrun::python {

/// A recipe as both sides compute it in a comparison, and what was changed for it, a few words each.
struct VerificationRecipe {
  Value resolved;
  std::vector<std::string> changes;
};

/// `resolved` for `steps` steps in float32, in one process, without dropout and random transforms, which draw other
/// numbers in Python. It writes into `folder`.
VerificationRecipe verification_recipe(const Value& resolved, int64_t steps, const std::string& folder,
                                       const Catalog& catalog);

/// Has the recipe begin with the weights in a file.
void begin_with(Value& recipe, const std::string& weights);

}  // namespace trainrun::python
