#pragma once

#include <string>

#include "runner/model/recipe_loader.h"
#include "tools/verbs.h"

namespace trainrun {

/// Loads the recipe of `arguments`, with what the file of --accelerate-config says ("": there is none). The notes of both,
/// what is no fault but hardly meant, go to standard error; nothing with --quiet.
LoadedRecipe load_with_notes(const RecipeArguments& arguments, const std::string& accelerate, Program& program);

}  // namespace trainrun
