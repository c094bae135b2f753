#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "registry/layer.h"

namespace trainrun {

/// A list of layers, wired and built: one torch::nn::Module whose children carry the state-dict names of PyTorch.
class Graph : public torch::nn::Module {
 public:
  /// One layer at its place in the graph. Slots number the tensors that flow: the graph's inputs first.
  struct Node {
    std::string name;
    std::string type;
    std::string path;  // "model.layers[2]"
    Place place;
    std::vector<size_t> inputs;
    std::vector<size_t> outputs;
    std::vector<size_t> last_used;  // input slots that nothing reads after this node
    Layer layer;
    std::shared_ptr<const void> options;  // the component's struct, for passes over the graph
    const std::type_info* options_type = nullptr;
    std::shared_ptr<const Value> written;            // the mapping, or the bare name, in the recipe
    std::vector<std::vector<int64_t>> input_shapes;  // with the example batch (kExampleBatch)
    std::vector<std::vector<int64_t>> output_shapes;
    std::vector<at::ScalarType> output_dtypes;
  };

  /// The graph's outputs. `inputs` are in the order of `input_names()`.
  Tensors forward(const Tensors& inputs);

  /// What `forward` gives, in this order: at first the outputs of the last layer.
  void set_outputs(std::vector<size_t> slots);
  const std::vector<size_t>& outputs() const { return outputs_; }
  /// Slot of a named layer, output or input, or nothing.
  std::optional<size_t> slot(const std::string& name) const;
  /// Names that `slot` knows.
  const std::vector<std::string>& names() const { return names_; }

  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<std::string>& input_names() const { return input_names_; }
  size_t num_slots() const { return num_slots_; }
  /// The `lr_scale` of one of its layers.
  double lr_scale(const std::string& layer) const;
  /// The product of the scales of the layers that a parameter lies in, by its state name; others' is 1.
  std::map<std::string, double> lr_scales() const;

 private:
  friend class GraphBuilder;
  std::vector<std::string> input_names_;
  /// `name` stands for `slot` from now on.
  void add_name(const std::string& name, size_t slot);
  std::vector<std::string> names_;  // as they came, for messages
  std::unordered_map<std::string, size_t> slots_by_name_;
  std::vector<Node> nodes_;
  std::vector<size_t> outputs_;
  size_t num_slots_ = 0;
  std::map<std::string, double> lr_scales_;  // of layers
};

/// The batch size of the examples that stand for data while shapes are found.
inline constexpr int64_t kExampleBatch = 2;

/// Builds `layers` for `inputs`. Sizes are found in the shape mode first, so a recipe that does not fit fails before
/// memory is taken; within the shape mode the result has no memory either. Throws RecipeError with the layer's place,
/// both shapes and both layers where something does not fit or a name is unknown.
std::shared_ptr<Graph> build_graph(const LayerList& layers, const LayerInputs& inputs);

}  // namespace trainrun
