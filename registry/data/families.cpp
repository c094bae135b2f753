#include "registry/data/families.h"

#include "registry/kinds/add_family.h"

// The page of the room: one line for each family of components, which is one source file.
namespace trainrun {

void add_dataset_families(DatasetRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, concat);
  TRAINRUN_ADD_FAMILY(registry, csv);
  TRAINRUN_ADD_FAMILY(registry, hub_dataset);
  TRAINRUN_ADD_FAMILY(registry, jsonl);
  TRAINRUN_ADD_FAMILY(registry, mixture);
  TRAINRUN_ADD_FAMILY(registry, parquet);
  TRAINRUN_ADD_FAMILY(registry, sqlite);
  TRAINRUN_ADD_FAMILY(registry, synthetic);
  TRAINRUN_ADD_FAMILY(registry, tensor_file);
  TRAINRUN_ADD_FAMILY(registry, views);
  TRAINRUN_ADD_FAMILY(registry, windows);
}

}  // namespace trainrun
