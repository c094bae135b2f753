#include "registry/layers/families.h"

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
  TRAINRUN_ADD_FAMILY(registry, positional_encodings);
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

// If two fusions want the same layer, the one that is named first gets it.
void add_fusion_families(FusionRegistry& registry) {
  TRAINRUN_ADD_FAMILY(registry, conv_max_pool);
  TRAINRUN_ADD_FAMILY(registry, batch_norm_relu);
  TRAINRUN_ADD_FAMILY(registry, relu_max_pool);
  TRAINRUN_ADD_FAMILY(registry, query_key_value);
  TRAINRUN_ADD_FAMILY(registry, swiglu);
  TRAINRUN_ADD_FAMILY(registry, linear_activation);
  TRAINRUN_ADD_FAMILY(registry, add_norm);
  TRAINRUN_ADD_FAMILY(registry, batch_norm);
  TRAINRUN_ADD_FAMILY(registry, winograd);
  TRAINRUN_ADD_FAMILY(registry, point_convolution);
}

}  // namespace trainrun
