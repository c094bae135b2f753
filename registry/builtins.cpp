#include "registry/catalog.h"

// Every component that comes with trainrun: one line a family. A family's file defines `void add_FAMILY(Registry&)`;
// its name here is what calls it, so nothing is registered behind anybody's back and the linker drops nothing.
#define ADD(registry, family)               \
  {                                         \
    void add_##family(decltype(registry)&); \
    add_##family(registry);                 \
  }

namespace trainrun {

// Not in an anonymous namespace, in which ADD would look for the families, too.
static void add_models(Catalog& catalog) {
  ADD(catalog.layers, activations);
  ADD(catalog.layers, adaptive_softmax);
  ADD(catalog.layers, attentions);
  ADD(catalog.layers, combinations);
  ADD(catalog.layers, containers);
  ADD(catalog.layers, convolutions);
  ADD(catalog.layers, dropouts);
  ADD(catalog.layers, elementwise);
  ADD(catalog.layers, linears);
  ADD(catalog.layers, noises);
  ADD(catalog.layers, normalizations);
  ADD(catalog.layers, paddings);
  ADD(catalog.layers, parameters);
  ADD(catalog.layers, poolings);
  ADD(catalog.layers, positions);
  ADD(catalog.layers, recurrent_cells);
  ADD(catalog.layers, recurrents);
  ADD(catalog.layers, reductions);
  ADD(catalog.layers, reshapes);
  ADD(catalog.layers, samplings);
  ADD(catalog.layers, self_attention);
  ADD(catalog.layers, torch_scripts);
  ADD(catalog.layers, transformers);
  ADD(catalog.layers, unpoolings);

  ADD(catalog.layers, berts);
  ADD(catalog.layers, convnexts);
  ADD(catalog.layers, distilberts);
  ADD(catalog.layers, efficientnets);
  ADD(catalog.layers, gpt2s);
  ADD(catalog.layers, llamas);
  ADD(catalog.layers, mobilenets);
  ADD(catalog.layers, resnets);
  ADD(catalog.layers, unets);
  ADD(catalog.layers, vggs);
  ADD(catalog.layers, vision_transformers);

  ADD(catalog.initializers, initializers);

  ADD(catalog.adapters, ia3s);
  ADD(catalog.adapters, loras);

  ADD(catalog.losses, classification_losses);
  ADD(catalog.losses, embedding_losses);
  ADD(catalog.losses, distillation_losses);
  ADD(catalog.losses, output_losses);
  ADD(catalog.losses, overlap_losses);
  ADD(catalog.losses, preference_losses);
  ADD(catalog.losses, regression_losses);
  ADD(catalog.losses, sequence_losses);

  ADD(catalog.metrics, classification_metrics);
  ADD(catalog.metrics, confusion_metrics);
  ADD(catalog.metrics, embedding_metrics);
  ADD(catalog.metrics, ranking_metrics);
  ADD(catalog.metrics, regression_metrics);
  ADD(catalog.metrics, sequence_metrics);
  ADD(catalog.metrics, preference_metrics);
}

static void add_data(Catalog& catalog) {
  ADD(catalog.datasets, digits);
  ADD(catalog.datasets, mnist_family);
  ADD(catalog.datasets, cifar);
  ADD(catalog.datasets, image_folder);
  ADD(catalog.datasets, image_csv);
  ADD(catalog.datasets, oxford_pets);
  ADD(catalog.datasets, segmentation_folder);
  ADD(catalog.datasets, concat);
  ADD(catalog.datasets, glue);
  ADD(catalog.datasets, mixture);
  ADD(catalog.datasets, shards);
  ADD(catalog.datasets, csv);
  ADD(catalog.datasets, jsonl);
  ADD(catalog.datasets, parquet);
  ADD(catalog.datasets, sqlite);
  ADD(catalog.datasets, chat);
  ADD(catalog.datasets, preference_pairs);
  ADD(catalog.datasets, synthetic);
  ADD(catalog.datasets, tensor_file);
  ADD(catalog.datasets, text_classification);
  ADD(catalog.datasets, text_lm);
  ADD(catalog.datasets, token_file);
  ADD(catalog.datasets, views);
  ADD(catalog.datasets, windows);

  ADD(catalog.transforms, auto_augment_transforms);
  ADD(catalog.transforms, color_transforms);
  ADD(catalog.transforms, crop_transforms);
  ADD(catalog.transforms, derived_fields);
  ADD(catalog.transforms, flip_transforms);
  ADD(catalog.transforms, geometry_transforms);
  ADD(catalog.transforms, image_transforms);
  ADD(catalog.transforms, label_transforms);
  ADD(catalog.transforms, mixing_transforms);
  ADD(catalog.transforms, noise_transforms);
  ADD(catalog.transforms, standardize);
  ADD(catalog.transforms, warp_transforms);
}

static void add_training(Catalog& catalog) {
  ADD(catalog.optimizers, adam_family);
  ADD(catalog.optimizers, adam_variants);
  ADD(catalog.optimizers, classic_optimizers);
  ADD(catalog.optimizers, large_batch_optimizers);
  ADD(catalog.optimizers, lbfgs);
  ADD(catalog.optimizers, matrix_optimizers);
  ADD(catalog.optimizers, running_squares);
  ADD(catalog.optimizers, sgd);
  ADD(catalog.optimizers, wrappers);

  ADD(catalog.schedulers, torch_schedulers);
  ADD(catalog.schedulers, warmup_schedulers);
  ADD(catalog.schedulers, cyclic_schedulers);
  ADD(catalog.schedulers, composite_schedulers);
  ADD(catalog.schedulers, piecewise);
  ADD(catalog.schedulers, plateau);
  ADD(catalog.schedulers, swa_lr);

  ADD(catalog.comm_hooks, compressions);
  ADD(catalog.comm_hooks, power_sgd);

  ADD(catalog.callbacks, early_stopping);
  ADD(catalog.callbacks, ema);
  ADD(catalog.callbacks, parameter_monitor);
  ADD(catalog.callbacks, progressive_resizing);
  ADD(catalog.callbacks, swa);
  ADD(catalog.callbacks, text_samples);

  ADD(catalog.fusions, relu_max_pool);
}

Catalog builtins() {
  Catalog catalog;
  add_models(catalog);
  add_data(catalog);
  add_training(catalog);
  return catalog;
}

}  // namespace trainrun
