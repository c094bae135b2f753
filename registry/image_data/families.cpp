#include "registry/image_data/families.h"

#include "registry/kinds/add_family.h"

// The page of the room: one line for each family of components, which is one source file.
namespace trainrun {

void add_image_dataset_families(DatasetRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, cifar);
  TRAINRUN_ADD_FAMILY(registry, digits);
  TRAINRUN_ADD_FAMILY(registry, image_csv);
  TRAINRUN_ADD_FAMILY(registry, image_folder);
  TRAINRUN_ADD_FAMILY(registry, mnist_family);
  TRAINRUN_ADD_FAMILY(registry, oxford_pets);
  TRAINRUN_ADD_FAMILY(registry, segmentation_folder);
  TRAINRUN_ADD_FAMILY(registry, shards);
}

}  // namespace trainrun
