#include "registry/kinds/layer_sharing.h"

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "registry/language/codec.h"

namespace trainrun {
namespace {

using nlohmann::json;

thread_local const LayerScope* innermost = nullptr;

const Graph::Node* find_node(const Graph& graph, const std::string& name) {
  const auto it = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                               [&](const Graph::Node& node) { return node.name == name; });
  return it == graph.nodes().end() ? nullptr : &*it;
}

/// The layer at `path` below a layer.
const Graph::Node* find_below(const Layer& layer, const std::string& path) {
  if (!layer.graph || layer.rewire) return nullptr;
  const size_t dot = path.find('.');
  const Graph::Node* node = find_node(*layer.graph, path.substr(0, dot));
  return !node || dot == std::string::npos ? node : find_below(node->layer, path.substr(dot + 1));
}

/// Whether one of the two leaves this option to what flows in.
bool follows_from_input(const std::string& option, const Graph::Node& own, const Graph::Node& other) {
  const auto may = [&](const Graph::Node& node) {
    return std::find(node.inferred.begin(), node.inferred.end(), option) != node.inferred.end();
  };
  return may(own) || may(other);
}

/// Whether a container's option may be a list of layers, or of lists of them, which is written as their types: they are
/// compared layer by layer.
bool holds_layers(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [](const json& item) { return item.is_string() || holds_layers(item); });
}

/// A list of equal numbers is that number: `kernel_size: [3, 3]` is 3.
json short_form(const json& value) {
  const bool equal = value.is_array() && !value.empty() && value[0].is_number() &&
                     std::all_of(value.begin(), value.end(), [&](const json& item) { return item == value[0]; });
  return equal ? value[0] : value;
}

/// "2" for 2.0, as it may have been written.
std::string text_of(const json& value) {
  if (value.is_number_float()) return detail::number_text(value.get<double>());
  return value.dump();
}

std::optional<LayerDifference> option_difference(const Graph::Node& own, const Graph::Node& other) {
  const bool are_containers = own.layer.graph && other.layer.graph && !own.layer.rewire;
  for (const auto& [option, written] : own.attributes.items()) {
    const json value = short_form(written);
    const json theirs = short_form(other.attributes.value(option, json()));
    if (value == theirs ||
        (are_containers && holds_layers(written) && holds_layers(other.attributes.value(option, json()))))
      continue;
    if ((value.is_null() || theirs.is_null()) && follows_from_input(option, own, other)) continue;
    return LayerDifference{option, option + " is " + text_of(value) + ", but " + text_of(theirs)};
  }
  return std::nullopt;
}

bool is_same_init(const Graph::Node& own, const Graph::Node& other) {
  if (!own.init || !other.init) return own.init == other.init;
  return same_meaning(*own.init, *other.init);
}

/// Between two layers at the same place of two containers: what a layer may say besides its own options, too.
std::optional<LayerDifference> nested_difference(const Graph::Node& own, const Graph::Node& other) {
  const auto said = [](const std::string& what, const std::string& mine, const std::string& theirs) {
    return LayerDifference{what, what + " is " + mine + ", but " + theirs};
  };
  if (own.name != other.name) return said("name", own.name, other.name);
  if (own.type != other.type) return said("type", own.type, other.type);
  if (!is_same_init(own, other)) return said("init", "its own", "another");
  if (own.inputs != other.inputs) return said("inputs", "its own", "another");
  return find_difference(own, other);
}

/// "3 layers"; of a container's parts, the lists of layers among them: "2 branches".
std::string count_text(const Graph& graph) {
  const auto& nodes = graph.nodes();
  if (nodes.empty() || nodes[0].is_written) return std::to_string(nodes.size()) + " layers";
  const auto lists = std::count_if(nodes.begin(), nodes.end(), [](const auto& node) { return node.layer.graph; });
  return std::to_string(lists) + " branches";
}

std::optional<LayerDifference> graph_difference(const Graph& own, const Graph& other) {
  if (own.nodes().size() != other.nodes().size()) {
    const std::string theirs = count_text(other);
    return LayerDifference{"layers", "there are " + count_text(own) + ", but " + theirs.substr(0, theirs.find(' '))};
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
    if (node && dot != std::string::npos) node = find_below(node->layer, name.substr(dot + 1));
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
  if (!own.layer.graph || !other.layer.graph || own.layer.rewire) return std::nullopt;
  return graph_difference(*own.layer.graph, *other.layer.graph);
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
