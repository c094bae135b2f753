#include <cstdio>
#include <memory>

#include "runner/device/device.h"
#include "runner/report/profile.h"
#include "tools/notes.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

constexpr int64_t kSteps = 20;

struct ProfileArguments {
  RecipeArguments recipe;
  int64_t steps = kSteps;
  bool as_json = false;
};

}  // namespace

void add_profile(CLI::App& app, Program& program) {
  CLI::App* verb =
      app.add_subcommand("profile", "measure where the time of a training step goes, layer by layer; writes nothing");
  const auto arguments = std::make_shared<ProfileArguments>();
  add_recipe_arguments(*verb, arguments->recipe);
  verb->add_option("--steps", arguments->steps, "optimizer steps to measure (default: 20)")->check(whole_from(1));
  verb->add_flag("--json", arguments->as_json, "print one JSON object, of seconds");
  verb->callback([&program, arguments] {
    prepare_device(arguments->recipe.path, arguments->recipe.overrides);
    const LoadedRecipe loaded = load_with_notes(arguments->recipe, "", program);
    const Profile found = profile(loaded, arguments->steps);
    std::fputs(arguments->as_json ? (to_json(found).dump(2) + "\n").c_str() : to_text(found).c_str(), stdout);
  });
}

}  // namespace trainrun
