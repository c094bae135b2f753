#include "registry/graph/decoding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>

#include <algorithm>
#include <set>

#include "registry/graph/flatten.h"

namespace trainrun {
namespace {

/// Layers that compute each element from the elements at its place, whatever the shape.
const std::set<std::string>& elementwise_layers() {
  static const std::set<std::string> types = {
      "Identity",       "Add",        "Sub",        "Mul",         "Div",       "Pow",
      "Clamp",          "Abs",        "Exp",        "Log",         "Sqrt",      "ReLU",
      "ReLU6",          "SELU",       "SiLU",       "Mish",        "Hardswish", "GELU",
      "LeakyReLU",      "ELU",        "CELU",       "Hardtanh",    "Threshold", "Softplus",
      "Sigmoid",        "Tanh",       "LogSigmoid", "Hardsigmoid", "Softsign",  "Tanhshrink",
      "Softshrink",     "Hardshrink", "Dropout",    "RReLU",       "Embedding", "AlphaDropout",
      "StochasticDepth"};
  return types;
}

/// Layers that mix the features of [N, T, C] and nothing else.
const std::set<std::string>& feature_layers() {
  static const std::set<std::string> types = {"Linear", "TransposedLinear", "Bilinear"};
  return types;
}

bool is_last_dim(const GraphNode& node, const nlohmann::json& dim) {
  if (!dim.is_number_integer()) return false;
  const auto rank = static_cast<int64_t>(node.input_shapes[0].size());
  return dim == -1 || dim == rank - 1;
}

/// Whether the layer treats each position of its inputs [N, T, …] by itself, while the model does not train. One with an
/// adapter ("LoRA Linear") does so where the layer alone does.
bool keeps_positions_apart(const GraphNode& node) {
  const std::string type = node.type.substr(node.type.rfind(' ') + 1);
  if (elementwise_layers().contains(type)) return true;
  if (node.input_shapes.empty() || node.input_shapes[0].size() < 3) return false;
  if (feature_layers().contains(type)) return true;
  const nlohmann::json& attributes = node.attributes;
  if (node.type == "LayerNorm" || node.type == "RMSNorm") {
    const nlohmann::json shape = attributes.value("normalized_shape", nlohmann::json());
    return !shape.is_array() || shape.size() == 1;
  }
  if (node.type == "Flatten") return attributes.value("start_dim", 0) >= 2;
  if (node.type == "Unflatten") return is_last_dim(node, attributes.value("dim", nlohmann::json()));
  static const std::set<std::string> along_one = {"Softmax", "LogSoftmax", "Softmin",    "GLU",
                                                  "Chunk",   "Split",      "LayerScale", "Concat"};
  return along_one.contains(node.type) && is_last_dim(node, attributes.value("dim", nlohmann::json()));
}

const DecodingOperation* decoding_operation(const std::shared_ptr<const Operation>& operation) {
  return dynamic_cast<const DecodingOperation*>(operation.get());
}

void collect_operations(const Plan& plan, std::set<const Operation*>& operations) {
  for (const PlanStep& step : plan.steps) {
    operations.insert(step.operation.get());
    if (step.inside) collect_operations(*step.inside, operations);
  }
}

class FurtherOperation : public DecodingOperation {
 public:
  using Further = std::function<Tensors(const Tensors&, const DecodingPoint&, Tensors&)>;
  FurtherOperation(Layer::Function function, Further further, const Traits& traits)
      : function_(std::move(function)), further_(std::move(further)), traits_(traits) {}
  Tensors run(const Tensors& inputs) const override { return function_(inputs); }
  Tensors run_further(const Tensors& inputs, const DecodingPoint& point, Tensors& memory) const override {
    return further_(inputs, point, memory);
  }
  Traits traits() const override { return traits_; }

 private:
  Layer::Function function_;
  Further further_;
  Traits traits_;
};

/// The number of positions that a layer has room for.
std::optional<int64_t> positions_of(const GraphNode& node) {
  const nlohmann::json& own = node.attributes;
  if (node.type == "PositionalEncoding") return own.at("max_len").get<int64_t>();
  if (node.type != "PositionIds" || !own.at("max_positions").is_number_integer()) return std::nullopt;
  const nlohmann::json& padding = own.at("padding_idx");
  return own["max_positions"].get<int64_t>() - (padding.is_number_integer() ? padding.get<int64_t>() + 1 : 0);
}

}  // namespace

at::Tensor DecodingPoint::positions(int64_t length, at::Device device) const {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor places = at::arange(past, past + length, options).unsqueeze(0);
  return padding.defined() ? at::clamp_min(places - padding.unsqueeze(1), 0) : places;
}

Layer decoding_layer(std::shared_ptr<torch::nn::Module> state, Layer::Function function,
                     std::function<Tensors(const Tensors&, const DecodingPoint&, Tensors&)> further,
                     const Operation::Traits& traits) {
  Layer layer;
  layer.state = std::move(state);
  layer.operation = std::make_shared<FurtherOperation>(std::move(function), std::move(further), traits);
  return layer;
}

std::optional<std::string> undecodable_layer(const Graph& graph, const Plan& plan) {
  std::set<const Operation*> run;
  collect_operations(plan, run);
  const FlatGraph flat = flatten(graph);
  for (const FlatLayer& layer : flat.layers) {
    if (!layer.is_leaf()) continue;
    const std::shared_ptr<const Operation>& operation = layer.node->layer.operation;
    // A fusion that has taken its place in the plan would not go on where it stopped.
    const bool goes_on = decoding_operation(operation) && run.contains(operation.get());
    if (!goes_on && !keeps_positions_apart(*layer.node)) return layer.written->path + ": " + layer.node->type;
  }
  return std::nullopt;
}

std::optional<int64_t> most_positions(const Graph& graph) {
  std::optional<int64_t> most;
  for (const FlatLayer& layer : flatten(graph).layers) {
    if (const auto own = positions_of(*layer.node)) most = std::min(most.value_or(*own), *own);
  }
  return most;
}

Tensors Decoding::run(const Tensors& inputs, int64_t length) {
  next_memory_ = 0;
  Tensors outputs = run_steps(plan_, inputs);
  point_.past += length;
  return outputs;
}

Tensors Decoding::run_steps(const Plan& plan, const Tensors& inputs) {
  Tensors slots(plan.num_slots);
  std::copy(inputs.begin(), inputs.end(), slots.begin());
  for (const PlanStep& step : plan.steps) {
    Tensors arguments;
    for (const size_t slot : step.inputs) arguments.push_back(slots[slot]);
    Tensors given = as_component(step.name, arguments, [&]() -> Tensors {
      if (step.inside) return run_steps(*step.inside, arguments);
      const DecodingOperation* operation = decoding_operation(step.operation);
      if (!operation) return step.operation->run(arguments);
      if (next_memory_ == memories_.size()) memories_.emplace_back();
      return operation->run_further(arguments, point_, memories_[next_memory_++]);
    });
    for (size_t i = 0; i < step.outputs.size(); ++i) slots[step.outputs[i]] = std::move(given[i]);
    for (const size_t slot : step.released) slots[slot].reset();
  }
  Tensors outputs;
  for (const size_t slot : plan.outputs) outputs.push_back(slots[slot]);
  return outputs;
}

}  // namespace trainrun
