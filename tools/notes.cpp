#include "tools/notes.h"

#include <cstdio>

#include "runner/model/recipe_notes.h"

namespace trainrun {

void print_notes(const LoadedRecipe& loaded, const Program& program) {
  if (program.quiet) return;
  for (const Problem& note : recipe_notes(loaded)) std::fprintf(stderr, "note: %s\n", note.to_string().c_str());
}

}  // namespace trainrun
