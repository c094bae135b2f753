#include "registry/catalog.h"
#include "registry/components/families.h"
#include "registry/data/families.h"
#include "registry/image_data/families.h"
#include "registry/layers/families.h"
#include "registry/models/families.h"
#include "registry/text_data/families.h"

// Every component that comes with trainrun; what each room adds is on its own page, families.cpp.
namespace trainrun {
namespace {

Catalog make_catalog() {
  Catalog catalog;
  add_layer_families(catalog.layers);
  add_initializer_families(catalog.initializers);
  add_loss_families(catalog.losses);
  add_metric_families(catalog.metrics);
  add_optimizer_families(catalog.optimizers);
  add_scheduler_families(catalog.schedulers);
  add_comm_hook_families(catalog.comm_hooks);
  add_callback_families(catalog.callbacks);
  add_adapter_families(catalog.adapters);
  add_fusion_families(catalog.fusions);
  add_model_families(catalog.layers);
  add_transform_families(catalog.transforms);
  add_dataset_families(catalog.datasets);
  add_text_dataset_families(catalog.datasets);
  add_image_dataset_families(catalog.datasets);
  return catalog;
}

}  // namespace

const Catalog& builtin_catalog() {
  static const Catalog catalog = make_catalog();
  return catalog;
}

Catalog builtins() { return builtin_catalog(); }

}  // namespace trainrun
