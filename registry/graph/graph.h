#pragma once

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "registry/graph/built_layer.h"
#include "registry/graph/onnx_form.h"
#include "registry/language/value.h"

namespace trainrun {

class Plan;

/// A component's own struct, for those who know its type, and how it is written as ONNX. Types are compared by name (as
/// libstdc++ does), since a plugin has its own description of a type.
class OwnOptions {
 public:
  OwnOptions() = default;
  OwnOptions(std::shared_ptr<const void> options, const std::type_info* type, OnnxFunction onnx)
      : options_(std::move(options)), type_(type), onnx_(onnx) {}
  template <class C>
  static OwnOptions of(const C& options) {
    return {std::make_shared<const C>(options), &typeid(C), onnx_function<C>()};
  }

  /// Null unless it is a `C`.
  template <class C>
  const C* as() const {
    return type_ && *type_ == typeid(C) ? static_cast<const C*>(options_.get()) : nullptr;
  }

  bool has_onnx() const { return onnx_ != nullptr; }
  /// Writes what it computes; only where `has_onnx`.
  void onnx(OnnxForm& form) const { onnx_(options_.get(), form); }

 private:
  std::shared_ptr<const void> options_;
  const std::type_info* type_ = nullptr;
  OnnxFunction onnx_ = nullptr;
};

/// One layer at its place in the graph. Slots number the tensors that flow through the graph, its inputs first.
struct GraphNode {
  std::string name;
  std::string type;
  std::string path;  // "model.layers[2]"
  Place place;
  bool is_written = true;             // false for a part of the layer around it, whose place in the recipe it has
  nlohmann::json attributes;          // the layer's parameters by name, defaults included
  OwnOptions own;                     // the same as the component's struct; see `options`
  std::vector<std::string> inferred;  // those of them that may be left to what flows in
  std::shared_ptr<const Value> init;  // its initial values as the recipe says them; null if it says nothing
  bool adds_prefix = true;  // its name, to those of its state; false for a whole model (Layer::is_whole_model)
  std::vector<size_t> inputs;
  std::vector<size_t> outputs;
  Layer layer;
  std::vector<std::vector<int64_t>> input_shapes;  // with the example batch (kExampleBatch)
  std::vector<std::vector<int64_t>> output_shapes;
  std::vector<at::ScalarType> output_dtypes;

  /// The struct of the component that the layer is, `node.options<Linear>()`; null if it is another, or has an adapter.
  template <class C>
  const C* options() const {
    return own.as<C>();
  }
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

}  // namespace trainrun
