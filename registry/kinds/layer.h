#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/graph/built_layer.h"
#include "registry/graph/onnx_form.h"
#include "registry/kinds/initializer.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/language/registry.h"

namespace torch::nn {
class Module;  // only files that make or use one need its (large) header
}

namespace trainrun {

class Graph;
struct LayerKind;
struct LayerInputs;
struct LayerList;

/// A layer whose `module` has `Tensor forward(Tensor)`.
template <class Holder>
Layer layer_of(const Holder& holder, const Operation::Traits& traits = {}) {
  return {holder.ptr(),
          [module = holder.ptr()](const Tensors& inputs) -> Tensors { return {module->forward(inputs[0])}; }, traits};
}

/// A layer without state: `function` maps its one input to its one output.
inline Layer layer_of_function(std::function<at::Tensor(const at::Tensor&)> function,
                               const Operation::Traits& traits = {}) {
  return {nullptr, [function = std::move(function)](const Tensors& inputs) -> Tensors { return {function(inputs[0])}; },
          traits};
}

/// Makes `tensor` the parameter "weight" of `module`, whose member `weight` is. Throws for a parameter of another name.
void tie_weight(torch::nn::Module& module, at::Tensor& weight, const std::string& name, const at::Tensor& tensor);

/// For Layer::tie of a module with a member `weight`: another layer's weight becomes its own.
template <class Module>
Layer::Tie tie_of_weight(const std::shared_ptr<Module>& module) {
  return [module](const std::string& name, const at::Tensor& tensor) {
    tie_weight(*module, module->weight, name, tensor);
  };
}

/// What a layer's `build` receives: examples of its inputs (shape and dtype without data, see graph/shape_mode.h), with
/// the batch as their first dimension.
struct LayerInputs {
  Tensors examples;
  /// Names under which layers nested in this one may ask for the examples: "" for none. As many as examples.
  std::vector<std::string> names;
  /// Where the examples come from, for messages: "model.layers[2] (Conv2d, a.yaml:14:9)". Empty, or as many as
  /// examples.
  std::vector<std::string> sources;
  /// Names that only the lists around this one know, for suggestions.
  std::vector<std::string> names_outside;
  /// How many classes a label among the examples has, if that is known. Empty, or as many as examples.
  std::vector<std::optional<int64_t>> num_classes;
  /// The layer that is built, as the recipe has it; its parts are at the same place.
  Place place;
  std::string path;  // "model.layers[2]"

  /// Shape of input `i`: [N, …]. Throws LayerError if there is no such input.
  at::IntArrayRef shape(size_t i = 0) const;
  /// The size of dimension `dim` of input 0 (from the end if negative), for a parameter that follows from it; `given`
  /// is what the recipe says. Throws LayerError if the two differ, or if the input has no such dimension.
  int64_t infer(const std::string& parameter, const std::optional<int64_t>& given, int64_t dim) const;
  /// Notes that `parameter` may be left to what flows in, as `infer` does for its own: of two layers that are one module
  /// (`share:`) one may say it and the other not.
  void note_inferred(const std::string& parameter) const { inferred_.push_back(parameter); }
  const std::vector<std::string>& inferred() const { return inferred_; }
  /// Whether `dim` (from the end if negative) is the last one of input 0, and that is [N, T, …]: what changes nothing but
  /// such a dimension treats each position by itself (Traits::position_wise).
  bool is_features(int64_t dim) const;
  /// Of what ATen computes along that dimension of input 0 alone, such as a softmax.
  Operation::Traits traits_along(int64_t dim) const;
  /// Throws LayerError unless input 0 has between `least` and `most` dimensions, the batch counted.
  void require_dims(int64_t least, int64_t most, const std::string& meaning) const;
  /// Throws LayerError unless there are between `least` and `most` inputs (captured ones not counted).
  void require_inputs(size_t least, size_t most) const;
  /// How many of the examples the recipe asked for; the rest are names that nested layers use.
  size_t num_own() const { return num_own_ ? *num_own_ : examples.size(); }
  void set_num_own(size_t number) { num_own_ = number; }

  /// Builds nested layers that read the same inputs as this layer.
  std::shared_ptr<Graph> graph(const LayerList& layers) const;

 private:
  std::optional<size_t> num_own_;
  mutable std::vector<std::string> inferred_;
};

/// One name or a list of them: `inputs: x`, `inputs: [x, y]`.
struct Names : std::vector<std::string> {
  using std::vector<std::string>::vector;
};

template <>
struct Codec<Names> {
  static std::optional<Names> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const Names& value) { return Codec<std::vector<std::string>>::write(value); }
  static std::string type_name() { return "name or list of names"; }
};

/// The parameters that every layer has besides its own.
struct LayerCommon {
  std::optional<std::string> name;
  Names inputs;
  Names outputs;
  int64_t repeat = 1;
  bool enabled = true;
  std::optional<InitializerRules> init;
  std::optional<std::string> share;
  double lr_scale = 1;
  static void describe(Fields<LayerCommon>& f);
};

struct LayerKind {
  static constexpr const char* kName = "layer";
  using Inputs = LayerInputs;
  using Product = Layer;
  using Common = LayerCommon;
  using Form = OnnxFunction;
  template <class C>
  static constexpr Form form_of() {
    return onnx_function<C>();
  }
};
using LayerRegistry = Registry<LayerKind>;
const LayerRegistry& registry_of(const Catalog& catalog, LayerKind);

/// One layer of a list, under its name in the state dict.
struct LayerSpec {
  std::string name;  // "conv1", or its index: "3"
  Component<LayerKind> component;
  std::vector<std::string> captures;  // names from outside that the layers within it read
};

/// A list of layers as a recipe has it: blocks, `repeat` and `if` resolved. The parameter type of `layers`, `main`, ….
struct LayerList {
  std::vector<LayerSpec> layers;
  std::vector<std::string> input_names;  // of a block that names its inputs
  bool is_written = true;                // false for the layers of a registered model, which are at its place
};

template <>
struct Codec<LayerList> {
  static std::optional<LayerList> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  /// The layers' types; a Graph has the layers themselves.
  static nlohmann::json write(const LayerList& value);
  static std::string type_name() { return "list of layers"; }
};

}  // namespace trainrun
