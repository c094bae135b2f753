#include "tools/notes.h"

#include <cstdio>

#include "runner/foresight/explain.h"
#include "runner/model/model.h"
#include "runner/model/recipe_notes.h"
#include "runner/train/schedule_notes.h"
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

void print_schedule_notes(const LoadedRecipe& loaded, const Program& program) {
  if (program.quiet || !loaded.is_planned) return;
  const LengthSummary length = explain_length(loaded.recipe, training_info(loaded.recipe));
  const JobLength job = {length.total_steps, length.steps_per_epoch, length.num_epochs};
  for (const Problem& note : schedule_notes(loaded.recipe, job)) {
    std::fprintf(stderr, "note: %s\n", note.to_string().c_str());
  }
}

}  // namespace trainrun
