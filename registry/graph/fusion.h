#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/graph/operation.h"

namespace trainrun {

struct GraphNode;  // registry/graph/graph.h, which files that make a fusion include

/// Layers that are computed as one. Each of them reads the one before and nothing else. Their modules, state names and
/// checkpoints stay as they are; only the steps of a Plan change.
///
///   catalog.fusions.add({"ReluMaxPool", "…", {"ReLU", "MaxPool2d"}, fuse});
struct Fusion {
  /// The layers that are to be fused, in their order, with attributes and shapes.
  using Nodes = std::vector<const GraphNode*>;

  std::string name;
  std::string doc;                 // one line
  std::vector<std::string> types;  // types of the layers, in their order
  /// Returns the operation that takes their place, from the inputs of the first to the outputs of the last; null if the
  /// attributes or shapes of these layers do not allow it. The operation may call `layer.operation` of the nodes, which
  /// live as long as it does, for inputs that it cannot handle.
  std::function<std::shared_ptr<const Operation>(const Nodes& nodes)> fuse;
  std::string origin{};  // "" for one that came with trainrun, else the plugin's file; `add` sets it
};

/// All fusions. If two fit the same layers, the one that was added first is used.
class FusionRegistry {
 public:
  /// Throws PluginError if the name is taken.
  void add(Fusion fusion);
  const std::vector<Fusion>& entries() const { return fusions_; }
  /// Sets the plugin from which later additions come.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Fusion> fusions_;
  std::string origin_;
};

}  // namespace trainrun
