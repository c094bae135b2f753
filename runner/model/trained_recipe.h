#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace trainrun {

class Catalog;
struct LoadedRecipe;

/// As `load_recipe`, of the recipe of a run that was trained: it has its weights. `known`: how data are read that are not
/// the training data (DatasetFacts::inferred), as the run has saved it; null: as the training data themselves say.
LoadedRecipe load_trained_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                                 const nlohmann::json& known);

}  // namespace trainrun
