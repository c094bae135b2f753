#include "runner/run/recipe_file.h"

#include "runner/base/secrets.h"
#include "runner/recipe/recipe_defaults.h"
#include "runner/recipe/recipe_source.h"
#include "runner/recipe/yaml.h"
#include "runner/run/run_identity.h"

namespace trainrun {
namespace {

/// Tells whether a recipe.yaml is that of the run.
RunFolder::Compare comparison_with(const LoadedRecipe& loaded, bool evaluation_counts) {
  return [&loaded, evaluation_counts](const std::string& path) {
    const ResolvedRecipe other = resolve_recipe(path, {});
    if (!other.unreadable.empty()) throw Error(other.unreadable + "; it may be the recipe of this run: try again");
    if (!other.problems.empty()) return RunFolder::Kinship{false, other.problems[0].to_string()};
    RecipeDifference difference = compare_recipes(other.value, loaded.resolved, evaluation_counts);
    if (difference.numbers.empty()) return RunFolder::Kinship{true, "", std::move(difference.others)};
    constexpr size_t kMostNamed = 3;
    if (difference.numbers.size() > kMostNamed) difference.numbers.resize(kMostNamed);
    return RunFolder::Kinship{false, join(difference.numbers)};
  };
}

}  // namespace

RunFolder::RecipeFile recipe_file(const LoadedRecipe& loaded) {
  size_t num_kept = 0;
  const Value recipe = with_secrets_kept(escape_interpolation(loaded.resolved), loaded.kept, num_kept);
  const std::string heading = "# the recipe of this run, resolved; `trainrun` on this file repeats it";
  const std::string secrets = num_kept > 0 ? ", where the environment is the same" : "";
  return {heading + secrets + "\n" + to_yaml(recipe), num_kept > 0};
}

RunFolder open_run_folder(const LoadedRecipe& loaded, bool evaluation_counts) {
  const Recipe& recipe = loaded.recipe;
  const auto mode = recipe.checkpoint.resume == "no" ? RunFolder::Resume::kNever : RunFolder::Resume::kAuto;
  return RunFolder::open(output_folder(recipe), recipe_file(loaded), comparison_with(loaded, evaluation_counts), mode);
}

}  // namespace trainrun
