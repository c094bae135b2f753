#pragma once

#include <functional>
#include <string>

#include "runner/model/recipe_loader.h"
#include "tools/verbs.h"

namespace trainrun {

/// Hears of what is no fault but hardly meant.
using NoteTaker = std::function<void(const Problem&)>;
/// Prints notes to standard error; nothing with --quiet.
NoteTaker note_printer(const Program& program);

/// Loads the recipe of `arguments`, with what the file of --accelerate-config says ("": there is none). `note` hears of
/// the notes of both.
LoadedRecipe load_with_notes(const RecipeArguments& arguments, const std::string& accelerate, Program& program,
                             const NoteTaker& note);
/// The same, with `note_printer`.
LoadedRecipe load_with_notes(const RecipeArguments& arguments, const std::string& accelerate, Program& program);

/// The notes that depend on the job's length, as far as it is known before the data are read.
void note_schedule(const LoadedRecipe& loaded, const NoteTaker& note);

}  // namespace trainrun
