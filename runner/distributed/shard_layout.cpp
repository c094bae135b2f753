#include "runner/distributed/shard_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "registry/graph/flatten.h"
#include "registry/language/error.h"
#include "registry/language/name_regex.h"

namespace trainrun {
namespace {

int64_t rounded_up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

/// The layers that the recipe has and that are modules, by their state names.
std::vector<FlatLayer> modules_of(const Graph& graph) {
  const auto modules = graph.named_modules();
  std::vector<FlatLayer> layers;
  for (FlatLayer& layer : flatten(graph).layers) {
    if (layer.node->is_written && modules.contains(layer.name)) layers.push_back(std::move(layer));
  }
  return layers;
}

/// Whether it is a layer of the graph itself.
bool is_own(const FlatLayer& layer) { return layer.depth == 0; }

bool lies_in(const std::string& parameter, const std::string& layer) { return parameter.starts_with(layer + "."); }

}  // namespace

ShardLayout::ShardLayout(const std::vector<int64_t>& sizes, int64_t world_size) {
  int64_t end = 0;
  for (const int64_t size : sizes) {
    offsets.push_back(end);
    end = rounded_up(end + size, kAlignment);
  }
  shard_size = rounded_up((end + world_size - 1) / world_size, kAlignment);
}

std::pair<int64_t, int64_t> ShardLayout::piece(size_t parameter, int64_t size, int64_t rank) const {
  const int64_t begin = std::clamp<int64_t>(rank * shard_size - offsets[parameter], 0, size);
  const int64_t end = std::clamp<int64_t>((rank + 1) * shard_size - offsets[parameter], 0, size);
  return {begin, end - begin};
}

std::vector<ShardUnit> shard_units(const Graph& graph, const std::vector<std::string>& wrap) {
  const std::vector<FlatLayer> layers = modules_of(graph);
  std::vector<FlatLayer> wrapped;
  if (wrap.empty()) {
    std::copy_if(layers.begin(), layers.end(), std::back_inserter(wrapped), is_own);
  }
  for (const std::string& pattern : wrap) {
    const Regex compiled = whole_regex_of(pattern);
    const size_t before = wrapped.size();
    for (const FlatLayer& layer : layers) {
      if (compiled.is_in(layer.name)) wrapped.push_back(layer);
    }
    if (wrapped.size() != before) continue;
    std::vector<std::string> names;
    for (const FlatLayer& layer : layers) names.push_back(layer.name);
    throw Error("sharding.wrap: '" + pattern + "' matches no layer's name" + suggestion(pattern, names));
  }

  std::map<const at::TensorImpl*, int> uses;
  for (const auto& item : graph.named_parameters()) ++uses[item.value().unsafeGetTensorImpl()];
  std::vector<ShardUnit> units;
  ShardUnit rest;
  std::set<std::string> own_layers_of_rest;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : graph.named_parameters()) {
    const at::TensorImpl* parameter = item.value().unsafeGetTensorImpl();
    const FlatLayer* chosen = nullptr;  // the innermost wrapped layer
    for (const FlatLayer& layer : wrapped) {
      if (lies_in(item.key(), layer.name) && (!chosen || layer.name.size() > chosen->name.size())) chosen = &layer;
    }
    if (uses[parameter] > 1) chosen = nullptr;
    if (!chosen) own_layers_of_rest.insert(item.key().substr(0, item.key().find('.')));
    if (!seen.insert(parameter).second) continue;
    if (!chosen) {
      rest.parameters.emplace_back(item.key(), item.value());
      continue;
    }
    auto unit = std::find_if(units.begin(), units.end(), [&](const auto& other) { return other.name == chosen->name; });
    if (unit == units.end()) unit = units.insert(units.end(), {chosen->name, {}, {chosen->name}});
    unit->parameters.emplace_back(item.key(), item.value());
  }
  for (const FlatLayer& layer : flatten(graph).layers) {
    const bool has_all = !layer.node->adds_prefix && layer.is_leaf() && !own_layers_of_rest.empty();
    const bool has_rest = is_own(layer) && (own_layers_of_rest.contains(layer.name) || has_all);
    if (has_rest && layer.node->layer.state) rest.layers.push_back(layer.name);
  }
  if (!rest.parameters.empty()) units.insert(units.begin(), rest);
  return units;
}

}  // namespace trainrun
