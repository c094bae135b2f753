#pragma once

#include <string>

#include "runner/model/recipe_loader.h"
#include "tools/verbs.h"

namespace trainrun {

/// Loads the recipe of `arguments`, with what the file of --accelerate-config says ("": there is none). The notes of both,
/// what is no fault but hardly meant, go to standard error; nothing with --quiet.
LoadedRecipe load_with_notes(const RecipeArguments& arguments, const std::string& accelerate, Program& program);

/// The notes that depend on the job's length, as far as it is known before the data are read, in the same way.
void print_schedule_notes(const LoadedRecipe& loaded, const Program& program);

}  // namespace trainrun
