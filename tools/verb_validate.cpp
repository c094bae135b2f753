#include <cstdio>
#include <memory>

#include "runner/recipe_loader.h"
#include "tools/notes.h"
#include "tools/verbs.h"

namespace trainrun {

void add_validate(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("validate", "check a recipe: every error, none of the data");
  const auto arguments = std::make_shared<RecipeArguments>();
  add_recipe_arguments(*verb, *arguments);
  verb->callback([&program, arguments] {
    const LoadedRecipe loaded = load_recipe(arguments->path, arguments->overrides, program.catalog);
    print_notes(loaded, program);
    if (!program.quiet) std::printf("%s: valid\n", arguments->path.c_str());
  });
}

}  // namespace trainrun
