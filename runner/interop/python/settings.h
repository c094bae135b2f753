#pragma once

#include "runner/interop/python/source_file.h"
#include "runner/model/recipe_loader.h"

namespace trainrun::python {

/// Refuses the settings of a recipe for which no program is written, and notes those that it leaves out.
void check_settings(const LoadedRecipe& loaded, SourceFile& file);

/// Adds the numbers of the loop that stand at the top of a program.
void write_constants(const Recipe& recipe, bool has_eval, SourceFile& file);

}  // namespace trainrun::python
