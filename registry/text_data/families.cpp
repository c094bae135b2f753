#include "registry/text_data/families.h"

#include "registry/kinds/add_family.h"

// The page of the room: one line for each family of components, which is one source file.
namespace trainrun {

void add_text_dataset_families(DatasetRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, chat);
  TRAINRUN_ADD_FAMILY(registry, glue);
  TRAINRUN_ADD_FAMILY(registry, preference_pairs);
  TRAINRUN_ADD_FAMILY(registry, sentence_pairs);
  TRAINRUN_ADD_FAMILY(registry, text_classification);
  TRAINRUN_ADD_FAMILY(registry, text_lm);
  TRAINRUN_ADD_FAMILY(registry, texts);
  TRAINRUN_ADD_FAMILY(registry, token_classification);
  TRAINRUN_ADD_FAMILY(registry, token_file);
}

}  // namespace trainrun
