#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/graph/graph.h"

namespace trainrun {

/// While one lives, on this thread: the layers of `graph` so far may be shared by those that come after them, in its
/// list and in lists nested in that. Nests.
class LayerScope {
 public:
  explicit LayerScope(const Graph& graph);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

  /// The layer called `name`, or one within a container ("encoder.fc1", as in the state dict), of the innermost list
  /// that has one; nullptr if there is none.
  static const Graph::Node* find(const std::string& name);
  /// The names of the layers in all these lists, for suggestions.
  static std::vector<std::string> names();

 private:
  const Graph& graph_;
  const LayerScope* outside_;
};

/// What tells two layers apart that are meant to be one module.
struct LayerDifference {
  std::string option;  // "stride", or "main.conv1.stride" within a container
  std::string text;    // "stride is 2, but 1"
};
/// The first difference between two layers of one type: in an option, or in the layers of a container. A size that one
/// of them leaves to what flows in is no difference: that of their parameters shows it.
std::optional<LayerDifference> find_difference(const Graph::Node& own, const Graph::Node& other);

/// Name and shape of each parameter.
using ParameterSizes = std::map<std::string, std::vector<int64_t>>;
ParameterSizes parameter_sizes(const Layer& layer);
/// Whether it has parameters or buffers: what two layers can have in common.
bool has_tensors(const Layer& layer);
/// Whether any of them lies in memory, as those of the shape mode do not.
bool has_memory(const Layer& layer);

}  // namespace trainrun
