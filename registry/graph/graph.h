#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "registry/layer.h"

namespace trainrun {

class Plan;

/// One layer at its place in the graph. Slots number the tensors that flow through the graph, its inputs first.
struct GraphNode {
  std::string name;
  std::string type;
  std::string path;  // "model.layers[2]"
  Place place;
  bool is_written = true;             // false for a part of the layer around it, whose place in the recipe it has
  nlohmann::json attributes;          // the layer's parameters by name, defaults included
  std::shared_ptr<const Value> init;  // its initial values as the recipe says them; null if it says nothing
  bool adds_prefix = true;  // its name, to those of its state; false for a whole model (Layer::is_whole_model)
  std::vector<size_t> inputs;
  std::vector<size_t> outputs;
  Layer layer;
  std::vector<std::vector<int64_t>> input_shapes;  // with the example batch (kExampleBatch)
  std::vector<std::vector<int64_t>> output_shapes;
  std::vector<at::ScalarType> output_dtypes;
};

/// A list of layers, wired and built: one torch::nn::Module whose children carry the state-dict names of PyTorch.
class Graph : public torch::nn::Module {
 public:
  using Node = GraphNode;

  /// Computes the graph's outputs layer by layer, without fusions. `inputs` are in the order of `input_names()`.
  Tensors forward(const Tensors& inputs);  // defined in passes.cpp, where its plan is made

  /// Sets which slots `forward` returns, in this order; initially those of the last layer's outputs.
  void set_outputs(std::vector<size_t> slots);
  const std::vector<size_t>& outputs() const { return outputs_; }
  /// The slot of a layer, output or input of that name, if there is one.
  std::optional<size_t> slot(const std::string& name) const;
  /// Names that `slot` knows.
  const std::vector<std::string>& names() const { return names_; }

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<std::string>& input_names() const { return input_names_; }
  size_t num_inputs() const { return num_inputs_; }
  size_t num_slots() const { return slots_.size(); }
  /// Tensors like its outputs, for the examples that it was built with.
  Tensors example_outputs() const;
  /// The `lr_scale` of one of its layers.
  double lr_scale(const std::string& layer) const;
  /// Calls `change` for each layer that computes, here and in the graphs within layers, with its state name: it may give
  /// the layer another type, other attributes and another operation, which reads and gives the same. A Plan that was
  /// made before does not see it.
  void rewrite(const std::function<void(const std::string& name, Node& node)>& change);
  /// For each parameter, by its state name: the product of the scales of the layers around it. A missing one has 1.
  std::map<std::string, double> lr_scales() const;

 private:
  friend class GraphBuilder;
  friend class GraphOfParts;
  void rewrite(const std::function<void(const std::string& name, Node& node)>& change, const std::string& prefix);
  /// Makes the layer's parameters and buffers the graph's, under this name.
  void register_state(const std::string& name, const Layer& layer);
  /// Makes what the module holds the graph's own, under the names that it has there.
  void take_over_state(const torch::nn::Module& module);
  std::vector<std::string> input_names_;
  /// `name` stands for `slot` from now on.
  void add_name(const std::string& name, size_t slot);
  std::vector<std::string> names_;  // as they came, for messages
  std::unordered_map<std::string, size_t> slots_by_name_;
  std::vector<Node> nodes_;
  std::vector<size_t> outputs_;
  size_t num_inputs_ = 0;
  Tensors slots_;                            // examples of what flows there, without data
  std::shared_ptr<const Plan> plan_;         // what `forward` runs; made when it is first needed
  std::map<std::string, double> lr_scales_;  // of layers
};

/// A part of a layer that consists of other layers, and that the recipe does not list.
struct Part {
  std::string type;           // the component it is: "Linear"
  nlohmann::json attributes;  // its parameters, as Fields::write gives them
  Layer layer;
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
