#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// A part of a layer that consists of other layers, and that the recipe does not list.
struct Part {
  std::string type;           // the component it is: "Linear"
  nlohmann::json attributes;  // its parameters, as Fields::write gives them
  Layer layer;
  OwnOptions own = {};  // the component's struct
};

/// Builds the graph of a layer from its parts: lists of layers, operations on their outputs, single layers.
class GraphOfParts {
 public:
  /// The layer's inputs have the first slots.
  explicit GraphOfParts(const LayerInputs& inputs);

  /// Registers the state of a part that is added later, for state names in another order than that in which parts
  /// compute. Parts for which it is not called are registered as they are added.
  void register_state(const std::string& name, const Layer& layer);
  /// Adds a part that reads the slots `inputs`; `outputs` are tensors like its outputs. Returns the slots of the outputs.
  std::vector<size_t> add(const std::string& name, Part part, std::vector<size_t> inputs, const Tensors& outputs);
  /// Adds a list of layers that reads all of the layer's inputs; returns the slot of its first output.
  size_t add(const std::string& name, const LayerList& layers);
  /// A tensor like the one that this slot will hold.
  const at::Tensor& example(size_t slot) const;
  std::shared_ptr<Graph> finish(std::vector<size_t> outputs);

 private:
  const LayerInputs& inputs_;
  std::shared_ptr<Graph> graph_;
  std::set<std::string> registered_;
};

}  // namespace trainrun
