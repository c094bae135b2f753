#include "registry/components/families.h"

#include "registry/kinds/add_family.h"

// The page of the room: one line for each family of components, which is one source file.
namespace trainrun {

void add_initializer_families(InitializerRegistry& registry) { TRAINRUN_ADD_FAMILY(registry, initializers); }

void add_loss_families(LossRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, alignment_losses);
  TRAINRUN_ADD_FAMILY(registry, classification_losses);
  TRAINRUN_ADD_FAMILY(registry, distillation_losses);
  TRAINRUN_ADD_FAMILY(registry, embedding_losses);
  TRAINRUN_ADD_FAMILY(registry, output_losses);
  TRAINRUN_ADD_FAMILY(registry, overlap_losses);
  TRAINRUN_ADD_FAMILY(registry, preference_losses);
  TRAINRUN_ADD_FAMILY(registry, regression_losses);
  TRAINRUN_ADD_FAMILY(registry, sentence_losses);
  TRAINRUN_ADD_FAMILY(registry, sequence_losses);
}

void add_metric_families(MetricRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, classification_metrics);
  TRAINRUN_ADD_FAMILY(registry, confusion_metrics);
  TRAINRUN_ADD_FAMILY(registry, embedding_metrics);
  TRAINRUN_ADD_FAMILY(registry, entity_metrics);
  TRAINRUN_ADD_FAMILY(registry, preference_metrics);
  TRAINRUN_ADD_FAMILY(registry, ranking_metrics);
  TRAINRUN_ADD_FAMILY(registry, regression_metrics);
  TRAINRUN_ADD_FAMILY(registry, sentence_metrics);
  TRAINRUN_ADD_FAMILY(registry, sequence_metrics);
}

void add_optimizer_families(OptimizerRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, adam_family);
  TRAINRUN_ADD_FAMILY(registry, adam_variants);
  TRAINRUN_ADD_FAMILY(registry, classic_optimizers);
  TRAINRUN_ADD_FAMILY(registry, large_batch_optimizers);
  TRAINRUN_ADD_FAMILY(registry, lbfgs);
  TRAINRUN_ADD_FAMILY(registry, matrix_optimizers);
  TRAINRUN_ADD_FAMILY(registry, running_squares);
  TRAINRUN_ADD_FAMILY(registry, sgd);
  TRAINRUN_ADD_FAMILY(registry, wrappers);
}

void add_scheduler_families(SchedulerRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, composite_schedulers);
  TRAINRUN_ADD_FAMILY(registry, cyclic_schedulers);
  TRAINRUN_ADD_FAMILY(registry, piecewise);
  TRAINRUN_ADD_FAMILY(registry, plateau);
  TRAINRUN_ADD_FAMILY(registry, swa_lr);
  TRAINRUN_ADD_FAMILY(registry, torch_schedulers);
  TRAINRUN_ADD_FAMILY(registry, warmup_schedulers);
}

void add_comm_hook_families(CommHookRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, compressions);
  TRAINRUN_ADD_FAMILY(registry, power_sgd);
}

void add_callback_families(CallbackRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, early_stopping);
  TRAINRUN_ADD_FAMILY(registry, ema);
  TRAINRUN_ADD_FAMILY(registry, parameter_monitor);
  TRAINRUN_ADD_FAMILY(registry, progressive_resizing);
  TRAINRUN_ADD_FAMILY(registry, sample_losses);
  TRAINRUN_ADD_FAMILY(registry, swa);
  TRAINRUN_ADD_FAMILY(registry, text_samples);
}

void add_adapter_families(AdapterRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, ia3s);
  TRAINRUN_ADD_FAMILY(registry, loras);
}

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
