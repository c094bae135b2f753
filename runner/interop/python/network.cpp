#include "runner/interop/python/network.h"

#include <algorithm>

#include "runner/interop/python/drafts.h"
#include "runner/interop/python/layer_forms.h"

namespace trainrun::python {
namespace {

/// The layer that is the whole model, under Python's names.
const Graph::Node* whole_model(const Graph& graph) {
  const bool is_one = graph.nodes().size() == 1 && !graph.nodes()[0].adds_prefix;
  return is_one ? graph.nodes().data() : nullptr;
}

}  // namespace

Network write_network(const Graph& graph, const std::vector<size_t>& slots, const LayerRegistry& registry,
                      SourceFile& file) {
  Network network;
  if (const Graph::Node* whole = whole_model(graph)) {
    std::vector<std::string> fields;
    for (const size_t slot : whole->inputs) fields.push_back(graph.input_names()[slot]);
    network.inputs = fields;
    network.outputs = {"output"};
    if (const auto form = form_of(*whole, fields, registry, file)) {
      network.make = *form->module;
      network.call = replaced(form->call, "{module}", "net");
      return network;
    }
    Drafter drafter(registry, file);
    drafter.draft(*whole->layer.graph, "Net", whole->layer.graph->outputs(), nullptr);
    settle(drafter.drafts(), file);
    network.make = drafter.drafts().back()->make;
    network.call = "net({all})";
    return network;
  }
  Drafter drafter(registry, file);
  const auto draft = drafter.draft(graph, "Net", slots, &network.outputs);
  settle(drafter.drafts(), file);
  network.make = draft->make;
  const auto is_read = [&](size_t input) {
    const auto reads = [&](const Graph::Node& node) {
      return std::find(node.inputs.begin(), node.inputs.end(), input) != node.inputs.end();
    };
    return std::any_of(graph.nodes().begin(), graph.nodes().end(), reads) ||
           std::find(slots.begin(), slots.end(), input) != slots.end();
  };
  for (size_t i = 0; i < graph.num_inputs(); ++i) {
    if (is_read(i)) network.inputs.push_back(graph.input_names()[i]);
  }
  network.call = "net({all})";
  return network;
}

}  // namespace trainrun::python
