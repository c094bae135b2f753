#pragma once

#include <string>

#include "runner/recipe/recipe.h"

namespace trainrun {

/// `message`, which says what is wrong with new data, with its advice as a command line takes it: "write delimiter: ';'" is
/// for a recipe, "add 'dataset.train.delimiter=\";\"' to the command" for what the recipe does not name.
std::string for_command(const std::string& message, const Recipe& recipe);

}  // namespace trainrun
