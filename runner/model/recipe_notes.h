#pragma once

#include <vector>

#include "runner/model/recipe_loader.h"

namespace trainrun {

/// What is no fault of a recipe but hardly meant: metrics without a data set for evaluation, a learning rate of 0 or
/// one that no optimizer learns with, attention over the batch instead of the sequence, more outputs than classes. Each
/// with its place.
std::vector<Problem> recipe_notes(const LoadedRecipe& loaded);

}  // namespace trainrun
