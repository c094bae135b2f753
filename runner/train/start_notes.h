#pragma once

#include "runner/model/recipe_loader.h"

namespace trainrun {

/// Logs what is no fault, but hardly meant, of the recipe and of how threads wait; with --verbose, how much computes.
void log_start_notes(const LoadedRecipe& loaded);

}  // namespace trainrun
