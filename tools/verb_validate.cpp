#include <cstdio>
#include <memory>

#include "runner/model/recipe_loader.h"
#include "tools/accelerate_option.h"
#include "tools/notes.h"
#include "tools/verbs.h"

namespace trainrun {

void add_validate(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("validate", "check a recipe and report every error; opens no data");
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto accelerate = std::make_shared<std::string>();
  add_recipe_arguments(*verb, *arguments);
  add_accelerate_option(*verb, *accelerate);
  verb->callback([&program, arguments, accelerate] {
    const LoadedRecipe loaded = load_with_notes(*arguments, *accelerate, program);
    const char* found = loaded.is_planned ? "valid" : "valid as far as can be told before the model is fetched";
    if (!program.quiet) std::printf("%s: %s\n", arguments->path.c_str(), found);
  });
}

}  // namespace trainrun
