#include "registry/kinds/graph_of_parts.h"

#include <numeric>

namespace trainrun {

GraphOfParts::GraphOfParts(const LayerInputs& inputs) : inputs_(inputs), graph_(std::make_shared<Graph>()) {
  graph_->input_names_ = inputs.names;
  graph_->num_inputs_ = inputs.examples.size();
  graph_->slots_ = inputs.examples;
}

void GraphOfParts::register_state(const std::string& name, const Layer& layer) {
  if (registered_.insert(name).second) graph_->register_state(name, layer);
}

std::vector<size_t> GraphOfParts::add(const std::string& name, Part part, std::vector<size_t> inputs,
                                      const Tensors& outputs) {
  GraphNode node;
  node.name = name;
  node.type = std::move(part.type);
  node.is_written = false;
  node.attributes = std::move(part.attributes);
  node.layer = std::move(part.layer);
  node.own = std::move(part.own);
  for (const size_t slot : inputs) node.input_shapes.push_back(graph_->slots_[slot].sizes().vec());
  node.inputs = std::move(inputs);
  for (const at::Tensor& output : outputs) {
    node.outputs.push_back(graph_->slots_.size());
    node.output_shapes.push_back(output.sizes().vec());
    node.output_dtypes.push_back(output.scalar_type());
    graph_->slots_.push_back(output);
  }
  register_state(name, node.layer);
  graph_->nodes_.push_back(std::move(node));
  return graph_->nodes_.back().outputs;
}

size_t GraphOfParts::add(const std::string& name, const LayerList& layers) {
  const auto graph = inputs_.graph(layers);
  std::vector<size_t> all(inputs_.examples.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const nlohmann::json attributes = {{"layers", Codec<LayerList>::write(layers)}};
  return add(name, {"Sequential", attributes, graph}, all, graph->example_outputs())[0];
}

const at::Tensor& GraphOfParts::example(size_t slot) const { return graph_->slots_[slot]; }

std::shared_ptr<Graph> GraphOfParts::finish(std::vector<size_t> outputs) {
  graph_->set_outputs(std::move(outputs));
  return std::move(graph_);
}

}  // namespace trainrun
