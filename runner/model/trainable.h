#pragma once

#include "runner/model/model.h"

namespace trainrun {

/// Throws RecipeError where there is nothing to train: the model has no parameters, or none of them has an influence on
/// any loss.
void check_trainable(const Recipe& recipe, const Model& model);

/// Of optimizer.param_groups, those that change nothing: earlier ones have all that their pattern matches, or it is
/// frozen.
std::vector<Problem> idle_groups(const Recipe& recipe, const Model& model);

}  // namespace trainrun
