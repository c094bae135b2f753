#pragma once

#include <string>
#include <vector>

#include "registry/graph/graph.h"

namespace trainrun {

/// A layer of a graph, or of a graph within one of its layers.
struct FlatLayer {
  const Graph::Node* node;
  const Graph::Node* written;   // the layer of the recipe that it is, or is a part of
  std::string name;             // in the state dict: "layer1.0.conv2"
  size_t depth;                 // how many layers it lies in
  size_t end;                   // in FlatGraph::layers: the layers within stand between it and this one
  std::vector<size_t> inputs;   // slots of the FlatGraph
  std::vector<size_t> outputs;  // a container's are those of layers within, or its inputs
  bool is_leaf() const { return !node->layer.graph; }
};

/// A graph and those within it as one list, with one numbering of the tensors that flow: the graph's inputs first.
struct FlatGraph {
  std::vector<FlatLayer> layers;  // as they compute; a container stands before the layers within
  std::vector<size_t> outputs;
  size_t num_slots = 0;
};

/// The one walk over nested layers: what reads a model, checks it, shards it or plans its run goes over this list. The
/// graph must live as long as the result.
FlatGraph flatten(const Graph& graph);

}  // namespace trainrun
