#pragma once

#include <string>
#include <vector>

#include "registry/catalog.h"
#include "runner/model/recipe_loader.h"

namespace trainrun::python {

/// A recipe as a PyTorch program.
struct Program {
  std::string text;
  std::vector<std::string> notes;  // what it does otherwise, and what it leaves out
};

/// Throws RecipeError where something of the recipe is not written, with all its places.
Program write_program(const LoadedRecipe& loaded, const Catalog& catalog);

}  // namespace trainrun::python
