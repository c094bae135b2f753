#include <cstdio>
#include <memory>

#include "registry/language/error.h"
#include "runner/device/device.h"
#include "runner/report/lr_find.h"
#include "tools/notes.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct LrFindArguments {
  RecipeArguments recipe;
  LrFindOptions options;
  bool as_json = false;
};

}  // namespace

void add_lr_find(CLI::App& app, Program& program) {
  CLI::App* verb =
      app.add_subcommand("lr-find", "train at growing learning rates and plot the loss over them; writes nothing");
  const auto arguments = std::make_shared<LrFindArguments>();
  add_recipe_arguments(*verb, arguments->recipe);
  verb->add_option("--min", arguments->options.min_lr, "the first rate (default: 1e-7)")->check(above_zero());
  verb->add_option("--max", arguments->options.max_lr, "the last rate (default: 10)")->check(above_zero());
  verb->add_option("--steps", arguments->options.steps, "optimizer steps (default: 100)")
      ->check(whole_between(15, 1000000));
  verb->add_flag("--json", arguments->as_json, "print one JSON object with every rate and loss");
  verb->callback([&program, arguments] {
    if (arguments->options.max_lr <= arguments->options.min_lr) throw Error("lr-find: --max must be above --min");
    prepare_device(arguments->recipe.path, arguments->recipe.overrides);
    const LoadedRecipe loaded = load_with_notes(arguments->recipe, "", program);
    const LrFind found = find_lr(loaded, arguments->options);
    std::fputs(arguments->as_json ? (to_json(found).dump(2) + "\n").c_str() : to_text(found).c_str(), stdout);
  });
}

}  // namespace trainrun
