#pragma once

#include <functional>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {

/// How all folds are trained.
struct FoldsTraining {
  bool quiet = false;
  bool verbose = false;
  /// As the program had it before a recipe loaded plugins into it.
  Catalog catalog;
  /// Trains the recipe with these overrides besides; returns an exit code.
  std::function<int(const std::vector<std::string>& overrides)> train;
};

/// `dataset.fold: {folds: N}`: trains the folds one after another, each a run in FOLDER/fold-0, fold-1, …, where FOLDER
/// is the recipe's folder, with a recipe.yaml and a lock of its own. Finished folds are not repeated, an unfinished one
/// goes on. Then FOLDER/predictions.csv has what the fold that did not see it predicts for each sample (masks lie in
/// FOLDER/masks), or a warning says why there is none; and summary.json has the mean and the standard deviation of each figure over the folds (divided by N, as numpy.std). Returns the exit code
/// of a fold that failed or was stopped, else 0.
int train_folds(const LoadedRecipe& loaded, const FoldsTraining& training);

}  // namespace trainrun
