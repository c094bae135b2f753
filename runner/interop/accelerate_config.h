#pragma once

#include <string>
#include <vector>

#include "registry/language/error.h"
#include "runner/interop/accelerate_settings.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {

/// Maps the text of `path`, YAML or JSON, as `accelerate config` of 0.11 to 1.15 writes it. `read` is asked for a
/// DeepSpeed file that it names. Never throws for what is wrong with the file. Source: accelerate 1.15,
/// commands/config and commands/launch.py.
AccelerateConfig map_accelerate_config(const std::string& text, const std::string& path, const ReadText& read);

/// The same of a file on disk. A DeepSpeed file is looked for from the working directory, as Accelerate does, then
/// beside `path`.
AccelerateConfig read_accelerate_config(const std::string& path);

/// As load_recipe, with `config` laid on the recipe before `overrides`. Faults of both come in one RecipeError; those
/// of a value that `config` gave have their place in its file.
LoadedRecipe load_recipe(const std::string& path, const AccelerateConfig& config,
                         const std::vector<std::string>& overrides, Catalog& catalog,
                         InitialWeights weights = InitialWeights::kNeeded);

}  // namespace trainrun
