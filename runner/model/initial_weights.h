#pragma once

#include <string>
#include <vector>

#include "registry/language/error.h"
#include "runner/model/model.h"

namespace trainrun {

/// Loads the weights that `model.weights` names, if it names any; what was skipped is returned, a line each. Throws
/// DataError, Error. `has_weights`: false: those that `model.weights` names are not there, and come from a checkpoint.
std::vector<std::string> load_initial_weights(const Recipe& recipe, Model& model, bool has_weights = true);

/// The faults of a recipe, written as `value`, whose weights are not there: files and folders that `model.weights`,
/// `models` and the layers of `model` (null: unknown) name. Looks for them, but opens none.
std::vector<Problem> missing_weights(const Recipe& recipe, const Value& value, const Model* model);

}  // namespace trainrun
