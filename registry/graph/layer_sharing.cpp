#include "registry/graph/layer_sharing.h"

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "registry/catalog.h"

namespace trainrun {
namespace {

using nlohmann::json;
using torch::nn::Module;

thread_local const LayerScope* innermost = nullptr;

const Graph::Node* find_node(const Graph& graph, const std::string& name) {
  const auto it = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                               [&](const Graph::Node& node) { return node.name == name; });
  return it == graph.nodes().end() ? nullptr : &*it;
}

/// The layer at `path` below the children of `module`.
const Graph::Node* find_below(const std::shared_ptr<Module>& module, const std::string& path) {
  if (!module) return nullptr;
  const size_t dot = path.find('.');
  const std::string step = path.substr(0, dot);
  if (const auto* graph = dynamic_cast<const Graph*>(module.get())) {
    const Graph::Node* node = find_node(*graph, step);
    return !node || dot == std::string::npos ? node : find_below(node->layer.state, path.substr(dot + 1));
  }
  const auto children = module->named_children();
  const auto* child = children.find(step);
  return child && dot != std::string::npos ? find_below(*child, path.substr(dot + 1)) : nullptr;
}

/// Whether a layer may leave this option to what flows in.
bool follows_from_input(const std::string& option) {
  static constexpr std::array<std::string_view, 12> kSizes = {
      "in_features", "in1_features", "in2_features",     "in_channels", "num_features", "num_channels",
      "input_size",  "d_model",      "normalized_shape", "embed_dim",   "kdim",         "vdim"};
  return std::find(kSizes.begin(), kSizes.end(), option) != kSizes.end();
}

const LayerRegistry& builtin_layers() {
  static const Catalog catalog = builtins();
  return catalog.layers;
}

/// What an option is without being written; null for one that a plugin declares.
json default_of(const std::string& type, const std::string& option) {
  const auto* layer = builtin_layers().find(type);
  if (!layer) return nullptr;
  for (const Parameter& parameter : layer->parameters) {
    if (parameter.name == option) return parameter.default_value;
  }
  return nullptr;
}

/// A value as JSON, where a list of equal numbers is that number: `kernel_size: [3, 3]` is 3.
json to_json(const Value& value) {
  if (value.is_list()) {
    json items = json::array();
    for (const Value& item : value.items()) items.push_back(to_json(item));
    const bool equal = !items.empty() && items[0].is_number() &&
                       std::all_of(items.begin(), items.end(), [&](const json& item) { return item == items[0]; });
    return equal ? items[0] : items;
  }
  if (value.is_map()) {
    json entries = json::object();
    for (const Value::Entry& entry : value.entries()) entries[entry.key] = to_json(entry.value);
    return entries;
  }
  if (value.is_null() || value.scalar_type() == ScalarType::kNull) return nullptr;
  if (value.scalar_type() == ScalarType::kString) return value.text();
  if (value.scalar_type() == ScalarType::kBool) return value.text()[0] == 't' || value.text()[0] == 'T';
  const json number = json::parse(value.text(), nullptr, false);
  return number.is_discarded() ? json(value.text()) : number;
}

json option_of(const Graph::Node& node, const std::string& option) {
  const Value* written = node.written ? node.written->find(option) : nullptr;
  return written ? to_json(*written) : default_of(node.type, option);
}

/// Whether `option` says something of a layer's place rather than of the layer; or of layers within, compared on their
/// own.
bool is_of_place(const std::string& option) {
  static constexpr std::array<std::string_view, 12> kOptions = {
      "type", "name", "inputs", "outputs", "repeat", "if", "share", "init", "lr_scale", "layers", "main", "shortcut"};
  return std::find(kOptions.begin(), kOptions.end(), option) != kOptions.end();
}

std::optional<LayerDifference> option_difference(const Graph::Node& own, const Graph::Node& other) {
  const bool is_block = dynamic_cast<const Graph*>(own.layer.state.get()) && !builtin_layers().find(own.type);
  if (is_block) return std::nullopt;  // its parameters show in its layers
  std::set<std::string> options;
  for (const Graph::Node* node : {&own, &other}) {
    if (!node->written) continue;
    for (const Value::Entry& entry : node->written->entries()) options.insert(entry.key);
  }
  for (const std::string& option : options) {
    if (is_of_place(option)) continue;
    const json value = option_of(own, option);
    const json theirs = option_of(other, option);
    if (value == theirs || (follows_from_input(option) && (value.is_null() || theirs.is_null()))) continue;
    return LayerDifference{option, option + " is " + value.dump() + ", but " + theirs.dump()};
  }
  return std::nullopt;
}

/// Between two layers at the same place of two containers: what a layer may say besides its own options, too.
std::optional<LayerDifference> nested_difference(const Graph::Node& own, const Graph::Node& other) {
  const auto said = [](const std::string& what, const std::string& mine, const std::string& theirs) {
    return LayerDifference{what, what + " is " + mine + ", but " + theirs};
  };
  if (own.name != other.name) return said("name", own.name, other.name);
  if (own.type != other.type) return said("type", own.type, other.type);
  if (option_of(own, "init") != option_of(other, "init")) return said("init", "its own", "another");
  if (own.inputs != other.inputs) return said("inputs", "its own", "another");
  return find_difference(own, other);
}

std::optional<LayerDifference> module_difference(const std::shared_ptr<Module>& own,
                                                 const std::shared_ptr<Module>& other);

std::optional<LayerDifference> graph_difference(const Graph& own, const Graph& other) {
  if (own.nodes().size() != other.nodes().size()) {
    return LayerDifference{"layers", "there are " + std::to_string(own.nodes().size()) + " layers, but " +
                                         std::to_string(other.nodes().size())};
  }
  for (size_t i = 0; i < own.nodes().size(); ++i) {
    const Graph::Node& node = own.nodes()[i];
    auto found = nested_difference(node, other.nodes()[i]);
    if (!found && own.lr_scale(node.name) != other.lr_scale(node.name)) {
      found = LayerDifference{"lr_scale", "lr_scale is its own, but another"};
    }
    if (found) return LayerDifference{node.name + "." + found->option, node.name + "." + found->text};
  }
  return std::nullopt;
}

/// Between the layers that two containers hold.
std::optional<LayerDifference> module_difference(const std::shared_ptr<Module>& own,
                                                 const std::shared_ptr<Module>& other) {
  if (!own || !other) return std::nullopt;
  const auto* graph = dynamic_cast<const Graph*>(own.get());
  const auto* other_graph = dynamic_cast<const Graph*>(other.get());
  if (graph && other_graph) return graph_difference(*graph, *other_graph);
  const auto others = other->named_children();
  if (own->named_children().size() != others.size()) {
    return LayerDifference{"layers", "there are " + std::to_string(own->named_children().size()) + " branches, but " +
                                         std::to_string(others.size())};
  }
  for (const auto& child : own->named_children()) {
    const auto* theirs = others.find(child.key());
    auto found = theirs ? module_difference(child.value(), *theirs) : std::nullopt;
    if (found) return LayerDifference{child.key() + "." + found->option, child.key() + "." + found->text};
  }
  return std::nullopt;
}

template <class Test>
bool any_tensor(const Layer& layer, const Test& test) {
  if (!layer.state) return false;
  const auto of = [&](const auto& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) { return t.defined() && test(t); });
  };
  return of(layer.state->parameters()) || of(layer.state->buffers());
}

}  // namespace

LayerScope::LayerScope(const Graph& graph) : graph_(graph), outside_(std::exchange(innermost, this)) {}

LayerScope::~LayerScope() { innermost = outside_; }

const Graph::Node* LayerScope::find(const std::string& name) {
  const size_t dot = name.find('.');
  for (const LayerScope* scope = innermost; scope; scope = scope->outside_) {
    const Graph::Node* node = find_node(scope->graph_, name.substr(0, dot));
    if (node && dot != std::string::npos) node = find_below(node->layer.state, name.substr(dot + 1));
    if (node) return node;
  }
  return nullptr;
}

std::vector<std::string> LayerScope::names() {
  std::vector<std::string> names;
  for (const LayerScope* scope = innermost; scope; scope = scope->outside_) {
    for (const Graph::Node& node : scope->graph_.nodes()) names.push_back(node.name);
  }
  return names;
}

std::optional<LayerDifference> find_difference(const Graph::Node& own, const Graph::Node& other) {
  if (auto found = option_difference(own, other)) return found;
  return module_difference(own.layer.state, other.layer.state);
}

ParameterSizes parameter_sizes(const Layer& layer) {
  ParameterSizes sizes;
  if (!layer.state) return sizes;
  for (const auto& item : layer.state->named_parameters()) sizes[item.key()] = item.value().sizes().vec();
  return sizes;
}

bool has_tensors(const Layer& layer) {
  return any_tensor(layer, [](const at::Tensor&) { return true; });
}

bool has_memory(const Layer& layer) {
  return any_tensor(layer, [](const at::Tensor& tensor) { return !tensor.is_meta(); });
}

}  // namespace trainrun
