#include "tools/notes.h"

#include <cstdio>

#include "runner/model/recipe_notes.h"
#include "tools/accelerate_option.h"

namespace trainrun {

LoadedRecipe load_with_notes(const RecipeArguments& arguments, const std::string& accelerate, Program& program) {
  const AccelerateConfig config = read_accelerate_option(accelerate);
  LoadedRecipe loaded = load_recipe(arguments.path, config, arguments.overrides, program.catalog);
  print_notes(config, program);
  if (program.quiet) return loaded;
  for (const PublishedName& name : loaded.names) {
    std::fprintf(stderr, "note: %s\n", Problem{name.place, name.path, name.source.text}.to_string().c_str());
  }
  for (const Problem& note : recipe_notes(loaded)) std::fprintf(stderr, "note: %s\n", note.to_string().c_str());
  return loaded;
}

}  // namespace trainrun
