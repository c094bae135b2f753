#pragma once

#include <string>

#include "runner/recipe/recipe.h"

namespace trainrun {

/// Whether an override of the recipe names other data for dataset.eval: "dataset.eval.path=new.npz".
bool names_evaluation_data(const std::string& change);

/// The key by which a recipe takes a part of these data: "dataset.eval.split"; "": it takes all of them.
std::string what_takes_a_part(const Component<DatasetKind>& data);

}  // namespace trainrun
