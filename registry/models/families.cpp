#include "registry/models/families.h"

#include "registry/kinds/add_family.h"

// The page of the room: one line for each family of components, which is one source file.
namespace trainrun {

void add_model_families(LayerRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, berts);
  TRAINRUN_ADD_FAMILY(registry, convnexts);
  TRAINRUN_ADD_FAMILY(registry, distilberts);
  TRAINRUN_ADD_FAMILY(registry, efficientnets);
  TRAINRUN_ADD_FAMILY(registry, gpt2s);
  TRAINRUN_ADD_FAMILY(registry, llamas);
  TRAINRUN_ADD_FAMILY(registry, mobilenets);
  TRAINRUN_ADD_FAMILY(registry, resnets);
  TRAINRUN_ADD_FAMILY(registry, sentence_transformers);
  TRAINRUN_ADD_FAMILY(registry, unets);
  TRAINRUN_ADD_FAMILY(registry, vggs);
  TRAINRUN_ADD_FAMILY(registry, vision_transformers);
}

}  // namespace trainrun
