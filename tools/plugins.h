#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "registry/catalog.h"

namespace trainrun {

/// Adds `--plugin LIB` to a verb that reads no recipe.
void add_plugin_option(CLI::App& verb, std::vector<std::string>& plugins);

/// Adds the plugins' components. Throws RecipeError (the command line is wrong) where one cannot be used.
void load_plugins(const std::vector<std::string>& plugins, Catalog& catalog);

}  // namespace trainrun
