#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace trainrun {

class OnnxGraph;  // registry/graph/onnx_graph.h

/// A tensor of an ONNX graph, by its name there. "": an optional input that is left out, an output that has no form.
struct OnnxValue {
  std::string name;
};
using OnnxValues = std::vector<OnnxValue>;
using OnnxAttribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>>;
using OnnxAttributes = std::vector<std::pair<std::string, OnnxAttribute>>;

/// What a layer's `void onnx(OnnxForm& form) const` writes to, a member of the struct that has `describe`: what the
/// layer computes in evaluation, as ONNX operators.
///
///   void onnx(OnnxForm& form) const { form.give(form.op("LeakyRelu", {form.input()}, {{"alpha", negative_slope}})); }
///
/// Sizes of what flows are not to be written down, so that the file serves batches, sequences and images of any size:
/// operators read them (`sizes`, and 0 and -1 in `reshape`). Dimensions are counted as PyTorch does, from the end if
/// negative.
class OnnxForm {
 public:
  /// A layer's input: a value, and what is known of it.
  struct Input {
    OnnxValue value;
    std::vector<int64_t> shape;  // of the example, whose batch is kExampleBatch
    at::ScalarType dtype = at::kFloat;
  };
  OnnxForm(OnnxGraph& graph, std::string layer, std::vector<Input> inputs, std::vector<at::ScalarType> outputs);

  size_t num_inputs() const { return inputs_.size(); }
  const OnnxValue& input(size_t i = 0) const { return inputs_.at(i).value; }
  at::ScalarType dtype(size_t i = 0) const { return inputs_.at(i).dtype; }
  int64_t rank(size_t i = 0) const { return static_cast<int64_t>(inputs_.at(i).shape.size()); }
  /// `dim` of input `i`, counted from the start.
  int64_t axis(int64_t dim, size_t i = 0) const { return dim < 0 ? dim + rank(i) : dim; }
  /// The size of a dimension of input `i`, which the file then has for good: inputs of other sizes are refused where it
  /// would be another.
  int64_t fixed_size(int64_t dim, size_t i = 0);
  size_t num_outputs() const { return outputs_.size(); }
  at::ScalarType output_dtype(size_t i = 0) const { return outputs_.at(i); }

  /// Whether the layer's module has a parameter or buffer of that name, which may lie in a module within: "fc.weight".
  bool has(const std::string& state) const;
  /// That one; throws Error if there is none.
  OnnxValue state(const std::string& name);
  const at::Tensor& state_tensor(const std::string& name) const;  // may have no data

  /// An operator of ONNX's own domain; its outputs.
  OnnxValues ops(const std::string& type, const OnnxValues& inputs, size_t num_outputs,
                 const OnnxAttributes& attributes = {});
  OnnxValue op(const std::string& type, const OnnxValues& inputs, const OnnxAttributes& attributes = {}) {
    return ops(type, inputs, 1, attributes)[0];
  }
  OnnxValue constant(const at::Tensor& values);
  OnnxValue number(double value, at::ScalarType dtype = at::kFloat);  // a scalar
  OnnxValue ints(const std::vector<int64_t>& values);                 // [n] int64
  OnnxValue cast(const OnnxValue& x, at::ScalarType dtype);
  /// The sizes of dimensions `begin` to before `end`, of which -1 … count from the end: [n] int64.
  OnnxValue sizes(const OnnxValue& x, int64_t begin, int64_t end);
  /// ONNX's Reshape: 0 keeps the size at that place, -1 is inferred.
  OnnxValue reshape(const OnnxValue& x, const std::vector<int64_t>& shape) { return op("Reshape", {x, ints(shape)}); }
  OnnxValue transpose(const OnnxValue& x, const std::vector<int64_t>& order) {
    return op("Transpose", {x}, {{"perm", order}});
  }

  /// The layer's next output, in their order.
  void give(OnnxValue output) { given_.push_back(std::move(output)); }
  const OnnxValues& given() const { return given_; }
  /// Throws Error: these options, or these inputs, have no form. "proj_size is not in ONNX's LSTM"
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  OnnxGraph& graph_;
  std::string layer_;  // its state name
  std::vector<Input> inputs_;
  std::vector<at::ScalarType> outputs_;
  OnnxValues given_;
};

/// Writes a layer whose struct is at `options`.
using OnnxFunction = void (*)(const void* options, OnnxForm& form);
/// That of component C; null if it has no `onnx`.
template <class C>
constexpr OnnxFunction onnx_function() {
  if constexpr (requires(const C& component, OnnxForm& form) { component.onnx(form); }) {
    return [](const void* options, OnnxForm& form) { static_cast<const C*>(options)->onnx(form); };
  } else {
    return nullptr;
  }
}

}  // namespace trainrun
