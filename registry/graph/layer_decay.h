#pragma once

#include <map>
#include <string>

#include "registry/graph/graph.h"

namespace trainrun {

/// For each parameter, by its state name: `decay` to the power of the number of layers above its own, so that the last
/// layer has 1. A layer is what the model lists: a layer or a container; of a list of containers, such as the blocks of
/// a ResNet's stage or a Transformer's encoder, each of them. What has only vectors (a normalization), or is a free
/// parameter (a class token), belongs to the layer before it. Source: Clark et al. 2020, "ELECTRA"; for Vision
/// Transformers the layers of timm's and BEiT's layer_decay.
std::map<std::string, double> layer_decay_scales(const Graph& graph, double decay);

}  // namespace trainrun
