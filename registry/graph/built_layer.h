#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "registry/graph/operation.h"

namespace torch::nn {
class Module;  // only files that make or use one need its (large) header
}

namespace trainrun {

class Graph;
struct LayerInputs;  // registry/kinds/layer.h

/// The matrix by which a layer multiplies its input, or whose rows it looks up: what adapters such as LoRA change.
struct AdaptableWeight {
  enum class Form {
    kOutIn,  // [out, in], as a Linear has it
    kInOut,  // [in, out]
    kRows,   // [indices, out]: rows that are looked up
  };
  Form form = Form::kOutIn;
  std::string weight = "weight";  // the parameter of the layer's module
  std::string bias = "bias";      // that of what is added to the product; the module may have none
  int64_t padding = -1;           // of rows: the index whose row gets no gradient; -1: none
};

/// What a layer's `build` returns: its module, and what it computes, which is either an operation or a graph of layers.
/// A graph can be read by all code that looks at the model.
///
///   return {module, [module](const Tensors& inputs) -> Tensors { … }};   // a layer that computes
///   return in.graph(layers);                                             // one that is made of others
struct Layer {
  using Function = std::function<Tensors(const Tensors&)>;
  using Tie = std::function<void(const std::string& parameter, const at::Tensor& tensor)>;
  using Rewire = std::function<Layer(const LayerInputs& inputs)>;

  Layer() = default;
  /// `module` may be null; `function` returns one or more outputs; the next layer reads the first.
  Layer(std::shared_ptr<torch::nn::Module> module, Function function, const Operation::Traits& traits = {})
      : state(std::move(module)), operation(operation_of(std::move(function), traits)) {}
  /// The graph is also the layer's module.
  Layer(std::shared_ptr<Graph> layers);  // NOLINT(google-explicit-constructor): `return in.graph(layers);`

  Tensors forward(const Tensors& inputs) const;

  /// The module that holds parameters and buffers, and that distinguishes training from evaluation; it is registered
  /// under the node's name. Null if there is none.
  std::shared_ptr<torch::nn::Module> state;
  std::shared_ptr<const Operation> operation;  // null if there is a graph
  std::shared_ptr<Graph> graph;                // null if there is an operation
  /// Makes the layer use `tensor` as its parameter of that name, to share weights with a layer of another type
  /// (`share:`). Null if it cannot.
  Tie tie;
  /// Where adapters find its weight. Empty: they cannot change it.
  std::optional<AdaptableWeight> adaptable;
  /// The same layer, with the same state, wired for a place that reads more or fewer inputs (`share:`). For layers that
  /// are graphs of parts which follow from their options: they are compared by those, and no layer may share such a
  /// part. Null: the layer serves there as it is.
  Rewire rewire;
  /// It is a whole model of Python's, such as torchvision's ResNet: where a recipe has no other layer and gives it no
  /// name, its state names are those of Python, without the layer's own in front.
  bool is_whole_model = false;
  /// Its state is one free parameter, which is registered under the layer's own name ("cls_token", not
  /// "cls_token.weight"). To initializers it is the layer's weight.
  bool is_parameter = false;
};

/// A layer of a DecodingOperation: `function` is its `run`, `further` its `run_further`.
Layer decoding_layer(std::shared_ptr<torch::nn::Module> state, Layer::Function function,
                     std::function<Tensors(const Tensors&, const DecodingPoint&, Tensors&)> further,
                     const Operation::Traits& traits = {});

}  // namespace trainrun
