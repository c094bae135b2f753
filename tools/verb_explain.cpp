#include <cstdio>
#include <memory>

#include "runner/explain.h"
#include "tools/verbs.h"

namespace trainrun {

void add_explain(CLI::App& app, Program& program) {
  CLI::App* verb =
      app.add_subcommand("explain", "what a recipe comes to: shapes, parameters, FLOPs, memory, steps; opens no data");
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto as_json = std::make_shared<bool>(false);
  add_recipe_arguments(*verb, *arguments);
  verb->add_flag("--json", *as_json, "print one JSON object");
  verb->callback([&program, arguments, as_json] {
    const LoadedRecipe loaded = load_recipe(arguments->path, arguments->overrides, program.catalog);
    const Explanation explanation = explain(loaded);
    std::fputs(*as_json ? (to_json(explanation).dump(2) + "\n").c_str() : to_text(explanation).c_str(), stdout);
  });
}

}  // namespace trainrun
