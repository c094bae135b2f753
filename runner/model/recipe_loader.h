#pragma once

#include <string>
#include <vector>

#include "runner/model/published_names.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// A recipe, read and checked.
struct LoadedRecipe {
  Recipe recipe;
  Value resolved;  // merged, overridden, interpolated: what the run's folder keeps
  std::string path;
  Value kept;                    // ResolvedRecipe's: what of it may be a secret
  std::vector<Problem> surplus;  // notes found while the model was planned: `surplus_outputs`, and of `settle_modes`
  std::vector<std::string> kept_notes;  // of a run: what its recipe names and is taken from its folder instead
  std::vector<PublishedName> names;
  std::vector<Problem> missing;  // with kUnlessResumed: the model's initial weights are not there
  bool is_planned = false;       // else a model or data are not fetched yet: nothing was checked that depends on sizes
};

/// Whether a job begins with the weights that its recipe names; what was trained has its own. kUnlessResumed: whoever loads
/// the recipe finds out whether it is a run that goes on, and heeds LoadedRecipe::missing where it is not.
enum class InitialWeights { kNeeded, kUnlessResumed, kUnneeded };

/// Reads the recipe at `path` with `key=value` overrides, loads its plugins into `catalog`, checks every value, finds
/// the shapes of the model, and looks whether the weights that are needed are there; opens no data. Throws RecipeError
/// with every fault there is.
LoadedRecipe load_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                         InitialWeights weights = InitialWeights::kNeeded);

/// The text of `resolved` that, loaded again, gives the same recipe.
std::string resolved_text(const Value& resolved);

}  // namespace trainrun
