#include "runner/train/drawn_model.h"

#include <algorithm>
#include <map>

#include "registry/graph/flatten.h"

namespace trainrun {
namespace {

std::string with_slashes(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

}  // namespace

DrawnGraph drawn_model(const Graph& graph) {
  const FlatGraph flat = flatten(graph);
  DrawnGraph drawn;
  std::map<size_t, std::string> makers;  // slot: the layer, or the input, that gives it
  for (size_t i = 0; i < graph.input_names().size(); ++i) {
    makers[i] = graph.input_names()[i];
    drawn.layers.push_back({graph.input_names()[i], "Placeholder", {}, {}, {}});
  }
  for (const FlatLayer& layer : flat.layers) {
    if (!layer.is_leaf()) continue;
    DrawnLayer one;
    one.name = with_slashes(layer.name);
    one.type = layer.node->type;
    for (const size_t slot : layer.inputs) {
      if (const auto found = makers.find(slot); found != makers.end()) one.inputs.push_back(found->second);
    }
    for (const auto& [key, value] : layer.node->attributes.items()) one.attributes.emplace_back(key, value.dump());
    if (!layer.node->output_shapes.empty()) {
      one.shape = layer.node->output_shapes[0];
      if (!one.shape.empty()) one.shape[0] = -1;
    }
    for (const size_t slot : layer.outputs) makers[slot] = one.name;
    drawn.layers.push_back(std::move(one));
  }
  return drawn;
}

}  // namespace trainrun
