#pragma once

#include <string>
#include <vector>

#include "registry/graph/graph.h"

namespace trainrun {

/// A layer of a graph, or of a graph within one of its layers.
struct FlatLayer {
  const Graph::Node* node;
  const Graph::Node* written;   // the layer in the recipe that it is, or that it is a part of
  std::string name;             // in the state dict: "layer1.0.conv2"
  size_t depth;                 // number of layers around it that state names know
  size_t end;                   // in FlatGraph::layers, the index after the last layer within it
  std::vector<size_t> inputs;   // slots of the FlatGraph
  std::vector<size_t> outputs;  // those of a container are outputs of layers within it, or its inputs
  bool is_leaf() const { return !node->layer.graph; }
};

/// A graph, with the graphs within its layers, as one list and with one numbering of tensors, the graph's inputs first.
struct FlatGraph {
  std::vector<FlatLayer> layers;  // in the order of computation; a container comes before the layers within it
  std::vector<size_t> outputs;
  size_t num_slots = 0;
};

/// The only walk over nested layers: code that reads a model, checks it, shards it or plans its run uses this list. The
/// graph must live as long as the result.
FlatGraph flatten(const Graph& graph);

/// A layer and those within it, as they stand in a FlatGraph.
struct LayerRange {
  size_t first;
  size_t end;  // the index after the last
};

/// That of the layer with this state name. Throws Error if there is none.
LayerRange range_of(const FlatGraph& flat, const std::string& name);

}  // namespace trainrun
