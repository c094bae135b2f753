#include <memory>

#include "runner/train_loop.h"
#include "tools/verbs.h"

namespace trainrun {

void add_run(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("run", "train what a recipe says");
  const auto arguments = std::make_shared<RecipeArguments>();
  add_recipe_arguments(*verb, *arguments);
  verb->callback([&program, arguments] {
    const LoadedRecipe loaded = load_recipe(arguments->path, arguments->overrides, program.catalog);
    Job job(loaded, {program.quiet, program.verbose});
    const int signal = train(job);
    program.exit_code = signal == 0 ? kDone : 128 + signal;
  });
}

}  // namespace trainrun
