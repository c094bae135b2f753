#include "runner/run/recipe_file.h"

#include "runner/base/secrets.h"
#include "runner/recipe/recipe_source.h"
#include "runner/recipe/yaml.h"

namespace trainrun {

RunFolder::RecipeFile recipe_file(const LoadedRecipe& loaded) {
  size_t num_kept = 0;
  const Value recipe = with_secrets_kept(escape_interpolation(loaded.resolved), loaded.kept, num_kept);
  const std::string heading = "# the recipe of this run, resolved; `trainrun` on this file repeats it";
  const std::string secrets = num_kept > 0 ? ", where the environment is the same" : "";
  return {heading + secrets + "\n" + to_yaml(recipe), num_kept > 0};
}

}  // namespace trainrun
