#include "registry/transforms/families.h"

#include "registry/kinds/add_family.h"

// The page of the room: one line for each family of components, which is one source file.
namespace trainrun {

void add_transform_families(TransformRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, auto_augment_transforms);
  TRAINRUN_ADD_FAMILY(registry, color_transforms);
  TRAINRUN_ADD_FAMILY(registry, crop_transforms);
  TRAINRUN_ADD_FAMILY(registry, derived_fields);
  TRAINRUN_ADD_FAMILY(registry, flip_transforms);
  TRAINRUN_ADD_FAMILY(registry, geometry_transforms);
  TRAINRUN_ADD_FAMILY(registry, image_transforms);
  TRAINRUN_ADD_FAMILY(registry, label_transforms);
  TRAINRUN_ADD_FAMILY(registry, masked_tokens);
  TRAINRUN_ADD_FAMILY(registry, mixing_transforms);
  TRAINRUN_ADD_FAMILY(registry, noise_transforms);
  TRAINRUN_ADD_FAMILY(registry, standardize);
  TRAINRUN_ADD_FAMILY(registry, warp_transforms);
}

}  // namespace trainrun
