#include "registry/components/families.h"

#include "registry/kinds/add_family.h"

// The page of the room: one line for each family of components, which is one source file.
namespace trainrun {

void add_layer_families(LayerRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, activations);
  TRAINRUN_ADD_FAMILY(registry, adaptive_softmax);
  TRAINRUN_ADD_FAMILY(registry, attentions);
  TRAINRUN_ADD_FAMILY(registry, combinations);
  TRAINRUN_ADD_FAMILY(registry, containers);
  TRAINRUN_ADD_FAMILY(registry, convolutions);
  TRAINRUN_ADD_FAMILY(registry, dropouts);
  TRAINRUN_ADD_FAMILY(registry, elementwise);
  TRAINRUN_ADD_FAMILY(registry, linears);
  TRAINRUN_ADD_FAMILY(registry, noises);
  TRAINRUN_ADD_FAMILY(registry, normalizations);
  TRAINRUN_ADD_FAMILY(registry, paddings);
  TRAINRUN_ADD_FAMILY(registry, parameters);
  TRAINRUN_ADD_FAMILY(registry, poolings);
  TRAINRUN_ADD_FAMILY(registry, positions);
  TRAINRUN_ADD_FAMILY(registry, recurrent_cells);
  TRAINRUN_ADD_FAMILY(registry, recurrents);
  TRAINRUN_ADD_FAMILY(registry, reductions);
  TRAINRUN_ADD_FAMILY(registry, reshapes);
  TRAINRUN_ADD_FAMILY(registry, samplings);
  TRAINRUN_ADD_FAMILY(registry, self_attention);
  TRAINRUN_ADD_FAMILY(registry, sentence_layers);
  TRAINRUN_ADD_FAMILY(registry, torch_scripts);
  TRAINRUN_ADD_FAMILY(registry, transformers);
  TRAINRUN_ADD_FAMILY(registry, unpoolings);
}

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
  TRAINRUN_ADD_FAMILY(registry, swa);
  TRAINRUN_ADD_FAMILY(registry, text_samples);
}

void add_adapter_families(AdapterRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, ia3s);
  TRAINRUN_ADD_FAMILY(registry, loras);
}

// If two fusions want the same layer, the one that is named first gets it.
void add_fusion_families(FusionRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, conv_max_pool);
  TRAINRUN_ADD_FAMILY(registry, relu_max_pool);
  TRAINRUN_ADD_FAMILY(registry, batch_norm_relu);
  TRAINRUN_ADD_FAMILY(registry, query_key_value);
  TRAINRUN_ADD_FAMILY(registry, swiglu);
  TRAINRUN_ADD_FAMILY(registry, linear_activation);
  TRAINRUN_ADD_FAMILY(registry, add_norm);
  TRAINRUN_ADD_FAMILY(registry, winograd);
}

}  // namespace trainrun
