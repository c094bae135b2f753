#pragma once

#include "runner/model/recipe_loader.h"
#include "tools/verbs.h"

namespace trainrun {

/// What is no fault of a recipe but hardly meant, on standard error; nothing with --quiet.
void print_notes(const LoadedRecipe& loaded, const Program& program);

}  // namespace trainrun
