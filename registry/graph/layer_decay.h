#pragma once

#include <map>
#include <string>

#include "registry/graph/graph.h"

namespace trainrun {

/// For each parameter, by its state name: `decay` to the power of the number of layers above its own, so that the last
/// layer has 1, and layers beside each other, such as two embeddings or two heads, have the same. A layer is what the
/// model lists: a layer or a container; of a list of blocks, as those of a ResNet's stage or a Transformer's encoder,
/// each of them, however deep in the model the list lies. What has only vectors (a normalization), or is a free
/// parameter (a class token), belongs to the layer before it; a head that has only the embeddings' weights is none.
/// Sources: Clark et al. 2020, "ELECTRA"; for Vision Transformers the layers of timm's and BEiT's layer_decay.
std::map<std::string, double> layer_decay_scales(const Graph& graph, double decay);

}  // namespace trainrun
