#include "registry/graph/onnx_graph.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "registry/language/error.h"

namespace trainrun {

OnnxGraph::OnnxGraph(const NamedTensors& state) {
  std::unordered_map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : state) {
    state_.emplace(name, tensor);
    first_names_[name] = names.emplace(tensor.unsafeGetTensorImpl(), name).first->second;
    names_.insert(name);
  }
}

const at::Tensor& OnnxGraph::state(const std::string& name) const {
  const auto found = state_.find(name);
  if (found == state_.end()) throw Error("there is no tensor called " + name);
  return found->second;
}

const std::string& OnnxGraph::state_name(const std::string& name) const {
  state(name);  // which throws
  return first_names_.at(name);
}

std::string OnnxGraph::unused(const std::string& name) {
  std::string result = name;
  for (size_t i = 1; !names_.insert(result).second; ++i) result = name + "_" + std::to_string(i);
  return result;
}

const OnnxValues& OnnxGraph::add(const std::string& layer, const std::string& type, const OnnxValues& inputs,
                                 size_t num_outputs, const OnnxAttributes& attributes) {
  OnnxNode node = {unused(layer + "/" + type), type, inputs, {}, attributes};
  for (size_t i = 0; i < num_outputs; ++i) {
    node.outputs.push_back({num_outputs == 1 ? node.name : unused(node.name + ":" + std::to_string(i))});
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

OnnxValue OnnxGraph::add_constant(const std::string& key, const std::string& name, const at::Tensor& values) {
  if (const auto found = constant_by_key_.find(key); !key.empty() && found != constant_by_key_.end()) {
    return {found->second};
  }
  std::string own = unused(name);
  constants_.emplace(own, values);
  if (!key.empty()) constant_by_key_[key] = own;
  return {std::move(own)};
}

void OnnxGraph::add_output(const OnnxValue& value, const std::string& name) {
  const std::string own = unused(name);
  nodes_.push_back({own, "Identity", {value}, {{own}}, {}});
  outputs_.push_back({own});
}

void OnnxGraph::prune() {
  std::set<std::string> read;
  for (const OnnxValue& output : outputs_) read.insert(output.name);
  std::vector<OnnxNode> kept;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const auto is_read = [&](const OnnxValue& value) { return read.contains(value.name); };
    if (std::none_of(node->outputs.begin(), node->outputs.end(), is_read)) continue;
    for (const OnnxValue& input : node->inputs) read.insert(input.name);
    kept.push_back(std::move(*node));
  }
  nodes_.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

NamedTensors OnnxGraph::initializers() const {
  NamedTensors result;
  std::set<std::string> seen;
  for (const OnnxNode& node : nodes_) {
    for (const OnnxValue& input : node.inputs) {
      if (!seen.insert(input.name).second) continue;
      if (const auto own = state_.find(input.name); own != state_.end()) result.emplace_back(input.name, own->second);
      if (const auto own = constants_.find(input.name); own != constants_.end()) {
        result.emplace_back(input.name, own->second);
      }
    }
  }
  return result;
}

int64_t onnx_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return 1;
    case at::kByte:
      return 2;
    case at::kChar:
      return 3;
    case at::kShort:
      return 5;
    case at::kInt:
      return 6;
    case at::kLong:
      return 7;
    case at::kBool:
      return 9;
    case at::kHalf:
      return 10;
    case at::kDouble:
      return 11;
    case at::kBFloat16:
      return 16;
    default:
      throw Error("ONNX has no numbers of the type " + std::string(at::toString(dtype)));
  }
}

OnnxForm::OnnxForm(OnnxGraph& graph, std::string layer, std::vector<Input> inputs, std::vector<at::ScalarType> outputs)
    : graph_(graph), layer_(std::move(layer)), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

int64_t OnnxForm::fixed_size(int64_t dim, size_t i) {
  const auto place = static_cast<size_t>(axis(dim, i));
  const int64_t size = inputs_.at(i).shape.at(place);
  graph_.add_fixed_size({layer_, i, place, size});
  return size;
}

bool OnnxForm::has(const std::string& state) const { return graph_.has_state(layer_ + "." + state); }

OnnxValue OnnxForm::state(const std::string& name) {
  // A free parameter (Layer::is_parameter) is called like the layer.
  if (!has(name) && graph_.has_state(layer_)) return {graph_.state_name(layer_)};
  return {graph_.state_name(layer_ + "." + name)};
}

const at::Tensor& OnnxForm::state_tensor(const std::string& name) const {
  if (!has(name) && graph_.has_state(layer_)) return graph_.state(layer_);
  return graph_.state(layer_ + "." + name);
}

OnnxValues OnnxForm::ops(const std::string& type, const OnnxValues& inputs, size_t num_outputs,
                         const OnnxAttributes& attributes) {
  return graph_.add(layer_, type, inputs, num_outputs, attributes);
}

OnnxValue OnnxForm::constant(const at::Tensor& values) { return graph_.add_constant("", layer_ + "/constant", values); }

OnnxValue OnnxForm::number(double value, at::ScalarType dtype) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  text << value << ':' << at::toString(dtype);
  return graph_.add_constant(text.str(), "number:" + text.str(), at::full({}, value, dtype));
}

OnnxValue OnnxForm::ints(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return graph_.add_constant("[" + text + "]", "sizes:" + text, at::tensor(values, at::kLong));
}

OnnxValue OnnxForm::cast(const OnnxValue& x, at::ScalarType dtype) {
  return op("Cast", {x}, {{"to", onnx_type(dtype)}});
}

OnnxValue OnnxForm::sizes(const OnnxValue& x, int64_t begin, int64_t end) {
  return op("Shape", {x}, {{"start", begin}, {"end", end}});
}

void OnnxForm::refuse(const std::string& why) const { throw Error(why); }

}  // namespace trainrun
