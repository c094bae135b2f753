#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/kinds/layer.h"
#include "runner/interop/python/layer_form.h"
#include "runner/interop/python/source_file.h"

namespace trainrun::python {

/// torchvision's, whose state names are ours.
LayerForm torchvision_model(const Graph::Node& node, const LayerRegistry& registry, SourceFile& file);
/// transformers' models, whose classes have these names: settings that the recipe has are those of the class's config.
/// Nothing where it is none of them.
std::optional<LayerForm> transformers_model(const Graph::Node& node, const std::vector<std::string>& inputs,
                                            SourceFile& file);

}  // namespace trainrun::python
