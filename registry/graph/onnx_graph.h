#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "registry/graph/onnx_form.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// onnx.TensorProto.DataType. Throws Error for a type that ONNX lacks.
int64_t onnx_type(at::ScalarType dtype);

/// One operator.
struct OnnxNode {
  std::string name;
  std::string type;
  OnnxValues inputs;
  OnnxValues outputs;
  OnnxAttributes attributes;
};

/// What OnnxForm writes to: operators in the order in which they run, and the tensors that they read besides inputs.
class OnnxGraph {
 public:
  /// A size that a layer's form wrote down (OnnxForm::fixed_size).
  struct FixedSize {
    std::string layer;  // its state name
    size_t input = 0;
    size_t dim = 0;
    int64_t size = 0;
  };

  /// `state`: all parameters and buffers by their state names; one that has several is known by the first.
  explicit OnnxGraph(const NamedTensors& state);

  const std::vector<OnnxNode>& nodes() const { return nodes_; }
  const std::vector<OnnxValue>& outputs() const { return outputs_; }
  const std::vector<FixedSize>& fixed_sizes() const { return fixed_sizes_; }
  /// Those that operators read, in the order in which they first do. After `prune`.
  NamedTensors initializers() const;

  /// No other value is called so.
  void add_input(const OnnxValue& input) { names_.insert(input.name); }
  bool has_state(const std::string& name) const { return state_.contains(name); }
  const at::Tensor& state(const std::string& name) const;
  /// The name by which operators read it.
  const std::string& state_name(const std::string& name) const;
  void add_fixed_size(FixedSize size) { fixed_sizes_.push_back(std::move(size)); }
  /// Adds an operator of the layer `layer`, and names its outputs.
  const OnnxValues& add(const std::string& layer, const std::string& type, const OnnxValues& inputs, size_t num_outputs,
                        const OnnxAttributes& attributes);
  /// Adds a tensor; `key` tells equal ones apart from others: they are written once. "": it is like no other.
  OnnxValue add_constant(const std::string& key, const std::string& name, const at::Tensor& values);
  /// Makes `value` the graph's next output, under that name.
  void add_output(const OnnxValue& value, const std::string& name);
  /// Removes operators whose outputs nothing reads.
  void prune();

 private:
  std::string unused(const std::string& name);

  std::unordered_map<std::string, at::Tensor> state_;
  std::unordered_map<std::string, std::string> first_names_;
  std::unordered_map<std::string, at::Tensor> constants_;         // by name
  std::unordered_map<std::string, std::string> constant_by_key_;  // its name
  std::set<std::string> names_;
  std::vector<OnnxNode> nodes_;
  std::vector<OnnxValue> outputs_;
  std::vector<FixedSize> fixed_sizes_;
};

}  // namespace trainrun
