#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/graph/operation.h"

namespace trainrun {

struct GraphNode;  // registry/graph/graph.h, which files that make a fusion include

/// What a fusion looks for: some layers, and how values flow between them. The layers need not stand next to each other
/// in the recipe, and may lie in different containers.
///
///   {.nodes = {{"sum", {"Add"}}, {"norm", {"LayerNorm"}, {"sum"}}}, .gives = {"norm", "sum"}}
struct FusionPattern {
  struct Node {
    std::string name;                // "norm"
    std::vector<std::string> types;  // of the layer: any of these
    /// For each input of the layer, what it reads: the name of an earlier node, for its first output, or else a name
    /// of the pattern's own for a value that comes from outside; the same name is the same value. If there are none,
    /// all that the layer reads comes from outside.
    std::vector<std::string> inputs = {};
    bool in_any_order = false;  // the two inputs may come the other way round
  };

  /// Layers in a row, each of which reads what the one before gives and nothing else; their names are "0", "1", …
  static FusionPattern chain(const std::vector<std::string>& types);

  /// Each but the first reads a value that an earlier one reads or gives.
  std::vector<Node> nodes;
  /// The nodes whose first outputs are the outputs of the fusion, which other layers may read. If there are none, it
  /// gives what the last node gives.
  std::vector<std::string> gives = {};
};

/// The layers that a pattern was found in, by the names of its nodes.
class FusedLayers {
 public:
  struct Found {
    const GraphNode* node = nullptr;
    bool is_turned = false;
  };

  explicit FusedLayers(std::map<std::string, Found> nodes) : nodes_(std::move(nodes)) {}
  const GraphNode& operator[](const std::string& name) const { return *nodes_.at(name).node; }
  /// Whether the layer reads its two inputs the other way round than the pattern says (`in_any_order`). What ATen computes
  /// of two tensors lies in memory as the first does.
  bool is_turned(const std::string& name) const { return nodes_.at(name).is_turned; }

 private:
  std::map<std::string, Found> nodes_;
};

/// Layers that are computed as one. Their modules, state names and checkpoints stay as they are; only the steps of a
/// Plan change.
///
///   catalog.fusions.add({"ReluMaxPool", "…", FusionPattern::chain({"ReLU", "MaxPool2d"}), fuse});
struct Fusion {
  std::string name;
  std::string doc;  // one line
  FusionPattern pattern;
  /// Returns the operation that takes the layers' place; null if their options or shapes do not allow it. It reads the
  /// values that come from outside, in the order in which the pattern's nodes read them, one with a name once. It may call
  /// `layer.operation` of the nodes, which live as long as it does.
  std::function<std::shared_ptr<const Operation>(const FusedLayers& layers)> fuse;
  bool is_fast_convolution = false;  // `training: {convolutions: direct}` leaves it out
  std::string origin{};              // "" for one that came with trainrun, else the plugin's file; `add` sets it
};

/// All fusions. If two want the same layer, the one that was added first gets it; one that computes a single layer in
/// another way comes after all others.
class FusionRegistry {
 public:
  /// Throws PluginError if the name is taken, or if the pattern is not one.
  void add(Fusion fusion);
  const std::vector<Fusion>& entries() const { return fusions_; }
  FusionRegistry without_fast_convolutions() const;
  /// Sets the plugin from which later additions come.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  std::vector<Fusion> fusions_;
  std::string origin_;
};

}  // namespace trainrun
