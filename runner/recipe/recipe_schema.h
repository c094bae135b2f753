#pragma once

#include <nlohmann/json.hpp>

#include "registry/catalog.h"

namespace trainrun {

/// The JSON Schema (draft 7) of recipes with every component of `catalog`, for editors and validators. It knows all
/// that is declared of parameters; not what only code checks: references, shapes, what a block's parameters become.
nlohmann::json recipe_schema(const Catalog& catalog);

}  // namespace trainrun
