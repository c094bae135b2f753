#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/graph/operation.h"

namespace trainrun {

struct GraphNode;  // registry/graph/graph.h, which files that make a fusion include

/// Layers, each of which reads the one before and nothing else, that are computed as one. What they are stays as it is:
/// modules, state names, checkpoints; only the steps of a Plan change.
///
///   catalog.fusions.add({"ReluMaxPool", "…", {"ReLU", "MaxPool2d"}, fuse});
struct Fusion {
  /// The layers that are to be fused, in their order, with attributes and shapes.
  using Nodes = std::vector<const GraphNode*>;

  std::string name;
  std::string doc;                 // one line
  std::vector<std::string> types;  // of the layers, the first first
  /// The operation that takes their place, from the first one's inputs to the last one's outputs; null where these
  /// layers, by their attributes and shapes, cannot be fused. It may call `layer.operation` of the nodes, which live as
  /// long, for inputs that it was not made for.
  std::function<std::shared_ptr<const Operation>(const Nodes& nodes)> fuse;
  std::string origin{};  // "" for one that came with trainrun, else the plugin's file; `add` sets it
};

/// The fusions there are. Of two that fit the same layers the one that was added first is taken.
class FusionRegistry {
 public:
  /// Throws PluginError if the name is taken.
  void add(Fusion fusion);
  const std::vector<Fusion>& entries() const { return fusions_; }
  /// What is added from now on comes from this plugin.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Fusion> fusions_;
  std::string origin_;
};

}  // namespace trainrun
