#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/interop/python/source_file.h"
#include "runner/model/model.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// The recipe's model without its adapters, which `write_adapters` adds: planned, without weights.
std::unique_ptr<Model> plan_base_model(const Recipe& recipe);

/// Statements of `train` behind the initial weights: layers get the recipe's adapters, and all else is frozen. `base`:
/// the model without them. `has_reference`: the program also calls the network without them.
std::vector<std::string> write_adapters(const Recipe& recipe, const Model& base, bool has_reference, SourceFile& file);

}  // namespace trainrun::python
