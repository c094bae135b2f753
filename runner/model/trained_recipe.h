#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace trainrun {

class Catalog;
struct LoadedRecipe;

/// As `load_recipe`, of the recipe of a run that was trained: it has its weights. `learnt`: what the run has saved of its
/// training data (DataContract), which need not be there then; null: as they say themselves.
LoadedRecipe load_trained_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                                 const nlohmann::json& learnt);

}  // namespace trainrun
