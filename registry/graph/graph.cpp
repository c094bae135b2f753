#include "registry/graph/graph.h"

#include <map>

namespace trainrun {
namespace {

/// The scales of the layers of `graph`, whose parameters are called `prefix` and so on, times those of layers within.
void collect_lr_scales(const Graph& graph, const std::string& prefix, std::map<std::string, double>& scales) {
  for (const Graph::Node& node : graph.nodes()) {
    const double scale = graph.lr_scale(node.name);
    if (scale != 1 && node.layer.state) {
      for (const auto& item : graph.named_parameters()) {
        const bool is_own = !node.adds_prefix || item.key() == node.name || item.key().starts_with(node.name + ".");
        if (is_own) scales.emplace(prefix + item.key(), 1).first->second *= scale;
      }
    }
    const std::string within = node.adds_prefix ? prefix + node.name + "." : prefix;
    if (node.layer.graph) collect_lr_scales(*node.layer.graph, within, scales);
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

}  // namespace

Layer::Layer(std::shared_ptr<Graph> layers) : state(layers), graph(std::move(layers)) {}

Layer decoding_layer(std::shared_ptr<torch::nn::Module> state, Layer::Function function,
                     std::function<Tensors(const Tensors&, const DecodingPoint&, Tensors&)> further,
                     const Operation::Traits& traits) {
  Layer layer;
  layer.state = std::move(state);
  layer.operation = std::make_shared<FurtherOperation>(std::move(function), std::move(further), traits);
  return layer;
}

Tensors Layer::forward(const Tensors& inputs) const { return graph ? graph->forward(inputs) : operation->run(inputs); }

double Graph::lr_scale(const std::string& layer) const {
  const auto it = lr_scales_.find(layer);
  return it == lr_scales_.end() ? 1 : it->second;
}

std::map<std::string, double> Graph::lr_scales() const {
  std::map<std::string, double> scales;
  collect_lr_scales(*this, "", scales);
  return scales;
}

void Graph::rewrite(const std::function<void(const std::string& name, Node& node)>& change) { rewrite(change, ""); }

void Graph::rewrite(const std::function<void(const std::string& name, Node& node)>& change, const std::string& prefix) {
  for (Node& node : nodes_) {
    if (node.layer.graph) {
      node.layer.graph->rewrite(change, node.adds_prefix ? prefix + node.name + "." : prefix);
    } else {
      change(prefix + node.name, node);
    }
  }
  plan_ = nullptr;
}

void Graph::register_state(const std::string& name, const Layer& layer) {
  if (layer.is_parameter) {
    register_parameter(name, layer.state->parameters().at(0));  // as PyTorch has `self.NAME = nn.Parameter(…)`
  } else if (layer.state) {
    register_module(name, layer.state);
  }
}

void Graph::take_over_state(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters(false)) {
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : module.named_buffers(false)) register_buffer(item.key(), item.value());
  for (const auto& item : module.named_children()) register_module(item.key(), item.value());
}

void Graph::set_outputs(std::vector<size_t> slots) {
  outputs_ = std::move(slots);
  plan_ = nullptr;
}

Tensors Graph::example_outputs() const {
  Tensors examples;
  for (const size_t slot : outputs_) examples.push_back(slots_[slot]);
  return examples;
}

std::optional<size_t> Graph::slot(const std::string& name) const {
  const auto it = slots_by_name_.find(name);
  return it == slots_by_name_.end() ? std::nullopt : std::optional<size_t>(it->second);
}

void Graph::add_name(const std::string& name, size_t slot) {
  names_.push_back(name);
  slots_by_name_[name] = slot;
}

}  // namespace trainrun
