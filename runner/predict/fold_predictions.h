#pragma once

#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {

/// Writes to `folder`/predictions.csv what the fold that did not see it predicts for each sample of `dataset.train`, in
/// the order of the samples: their number from 0, what id columns call them, the fold, and what `predict` writes; masks
/// to `folder`/masks. `runs`: the folders of the folds, all finished. `catalog`: without the recipe's plugins. Throws
/// Error where CSV cannot hold it.
void predict_held_out(const LoadedRecipe& loaded, const std::vector<std::string>& runs, const Catalog& catalog,
                      const std::string& folder);

}  // namespace trainrun
