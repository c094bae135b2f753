#pragma once

#include "runner/model/recipe_loader.h"
#include "runner/run/run_folder.h"

namespace trainrun {

/// The recipe.yaml of a run: resolved, so that `trainrun` on it repeats the run, but for what of the environment may be
/// a secret, which stays `${env:…}`; the file is then private.
RunFolder::RecipeFile recipe_file(const LoadedRecipe& loaded);
/// The folder of the recipe's run: of the one that it resumes, or a new one. `evaluation_counts`: as compare_recipes has
/// it.
RunFolder open_run_folder(const LoadedRecipe& loaded, bool evaluation_counts);

}  // namespace trainrun
