#include "runner/distributed/shard_layout.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "registry/error.h"

namespace trainrun {
namespace {

int64_t rounded_up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

/// A layer of the graph or of one nested in it, with its state name.
struct NamedNode {
  std::string name;
  Graph::Node* node;
  bool is_own;  // of the graph itself
};

void collect_nodes(torch::nn::Module& module, const std::string& prefix, bool is_own, std::vector<NamedNode>& nodes) {
  auto* graph = dynamic_cast<Graph*>(&module);
  for (const auto& child : module.named_children()) {
    const std::string name = prefix + child.key();
    if (graph) {
      for (Graph::Node& node : graph->nodes()) {
        if (node.name == child.key()) nodes.push_back({name, &node, is_own});
      }
    }
    collect_nodes(*child.value(), name + ".", false, nodes);
  }
}

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

std::vector<ShardUnit> shard_units(Graph& graph, const std::vector<std::string>& wrap) {
  std::vector<NamedNode> nodes;
  collect_nodes(graph, "", true, nodes);
  std::vector<NamedNode> wrapped;
  if (wrap.empty()) {
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(wrapped), [](const auto& node) { return node.is_own; });
  }
  for (const std::string& pattern : wrap) {
    const std::regex compiled(pattern);
    const size_t before = wrapped.size();
    for (const NamedNode& node : nodes) {
      if (std::regex_match(node.name, compiled)) wrapped.push_back(node);
    }
    if (wrapped.size() != before) continue;
    std::vector<std::string> names;
    for (const NamedNode& node : nodes) names.push_back(node.name);
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
    const NamedNode* chosen = nullptr;  // the innermost wrapped layer
    for (const NamedNode& node : wrapped) {
      if (lies_in(item.key(), node.name) && (!chosen || node.name.size() > chosen->name.size())) chosen = &node;
    }
    if (uses[parameter] > 1) chosen = nullptr;
    if (!chosen) own_layers_of_rest.insert(item.key().substr(0, item.key().find('.')));
    if (!seen.insert(parameter).second) continue;
    if (!chosen) {
      rest.parameters.emplace_back(item.key(), item.value());
      continue;
    }
    auto unit = std::find_if(units.begin(), units.end(), [&](const auto& other) { return other.name == chosen->name; });
    if (unit == units.end()) unit = units.insert(units.end(), {chosen->name, {}, {chosen->node}});
    unit->parameters.emplace_back(item.key(), item.value());
  }
  for (const NamedNode& node : nodes) {
    if (node.is_own && own_layers_of_rest.contains(node.name)) rest.nodes.push_back(node.node);
  }
  if (!rest.parameters.empty()) units.insert(units.begin(), rest);
  return units;
}

}  // namespace trainrun
