#include "tools/notes.h"

#include <cstdio>

#include "runner/foresight/explain.h"
#include "runner/model/model.h"
#include "runner/model/recipe_notes.h"
#include "runner/train/schedule_notes.h"
#include "tools/accelerate_option.h"

namespace trainrun {

NoteTaker note_printer(const Program& program) {
  if (program.quiet) return [](const Problem&) {};
  return [](const Problem& note) { std::fprintf(stderr, "note: %s\n", note.to_string().c_str()); };
}

LoadedRecipe load_with_notes(const RecipeArguments& arguments, const std::string& accelerate, Program& program,
                             const NoteTaker& note) {
  const AccelerateConfig config = read_accelerate_option(accelerate);
  LoadedRecipe loaded = load_recipe(arguments.path, config, arguments.overrides, program.catalog);
  for (const Problem& one : config.notes) note(one);
  for (const PublishedName& name : loaded.names) note({name.place, name.path, name.source.text});
  for (const Problem& one : recipe_notes(loaded)) note(one);
  return loaded;
}

LoadedRecipe load_with_notes(const RecipeArguments& arguments, const std::string& accelerate, Program& program) {
  return load_with_notes(arguments, accelerate, program, note_printer(program));
}

void note_schedule(const LoadedRecipe& loaded, const NoteTaker& note) {
  if (!loaded.is_planned) return;
  const LengthSummary length = explain_length(loaded.recipe, training_info(loaded.recipe));
  const JobLength job = {length.total_steps, length.steps_per_epoch, length.num_epochs};
  for (const Problem& one : schedule_notes(loaded.recipe, job)) note(one);
}

}  // namespace trainrun
