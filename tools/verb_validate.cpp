#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/model/recipe_loader.h"
#include "tools/accelerate_option.h"
#include "tools/notes.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

/// How far a recipe could be checked.
const char* verdict(const LoadedRecipe& loaded) {
  if (loaded.is_planned) return "valid";
  const bool waits_for_data = std::ranges::any_of(
      loaded.names, [](const PublishedName& name) { return name.is_data && !name.source.has_config; });
  return waits_for_data ? "valid as far as can be told before the data are fetched"
                        : "valid as far as can be told before the model is fetched";
}

}  // namespace

void add_validate(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("validate", "check a recipe and report every error; opens no data");
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto accelerate = std::make_shared<std::string>();
  add_recipe_arguments(*verb, *arguments);
  add_accelerate_option(*verb, *accelerate);
  verb->callback([&program, arguments, accelerate] {
    const LoadedRecipe loaded = load_with_notes(*arguments, *accelerate, program);
    if (!program.quiet) std::printf("%s: %s\n", arguments->path.c_str(), verdict(loaded));
  });
}

}  // namespace trainrun
