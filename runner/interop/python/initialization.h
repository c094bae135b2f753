#pragma once

#include <string>
#include <vector>

#include "runner/interop/python/source_file.h"
#include "runner/recipe/recipe.h"

namespace trainrun::python {

/// Statements of `train` behind the making of the network: initial values, weights from a file, and what is not trained.
std::vector<std::string> write_initialization(const Recipe& recipe, SourceFile& file);

}  // namespace trainrun::python
