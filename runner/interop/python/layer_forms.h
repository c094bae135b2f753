#pragma once

#include <optional>
#include <string>

#include "registry/graph/graph.h"
#include "registry/kinds/layer.h"
#include "runner/interop/python/layer_form.h"
#include "runner/interop/python/source_file.h"

namespace trainrun::python {

/// Layers that `repeat` makes, under one name: a list, although it has the type of its layers.
bool is_repetition(const Graph::Node& node);
/// The layer as one module or one expression; nothing where it is made of others, or is not known in PyTorch. What the
/// form needs besides is added to `file`. `inputs`: what the values that it reads are called.
std::optional<LayerForm> form_of(const Graph::Node& node, const std::vector<std::string>& inputs,
                                 const LayerRegistry& registry, SourceFile& file);

/// `template_text` with the inputs in their places.
std::string filled(std::string template_text, const std::string& module, const std::vector<std::string>& inputs);

}  // namespace trainrun::python
