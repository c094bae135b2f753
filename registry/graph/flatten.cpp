#include "registry/graph/flatten.h"

#include <numeric>

#include "registry/language/error.h"

namespace trainrun {
namespace {

class Flattener {
 public:
  explicit Flattener(const Graph& graph) {
    std::vector<size_t> inputs(graph.num_inputs());
    std::iota(inputs.begin(), inputs.end(), size_t{0});
    flat_.num_slots = inputs.size();
    flat_.outputs = add(graph, inputs, nullptr, "", 0);
  }

  FlatGraph take() { return std::move(flat_); }

 private:
  /// `slots`: of the graph's inputs; those of its outputs are returned.
  std::vector<size_t> add(const Graph& graph, std::vector<size_t> slots, const Graph::Node* around,
                          const std::string& prefix, size_t depth) {
    slots.resize(graph.num_slots());
    const auto outside = [&](const std::vector<size_t>& own) {
      std::vector<size_t> result;
      for (const size_t slot : own) result.push_back(slots[slot]);
      return result;
    };
    for (const Graph::Node& node : graph.nodes()) {
      const size_t index = flat_.layers.size();
      const Graph::Node* written = node.is_written || !around ? &node : around;
      flat_.layers.push_back({&node, written, prefix + node.name, depth, index + 1, outside(node.inputs), {}});
      std::vector<size_t> outputs(node.outputs.size());
      if (node.layer.graph) {
        const std::string within = node.adds_prefix ? prefix + node.name + "." : prefix;
        outputs = add(*node.layer.graph, outside(node.inputs), written, within, depth + (node.adds_prefix ? 1 : 0));
      } else {
        std::iota(outputs.begin(), outputs.end(), flat_.num_slots);
        flat_.num_slots += outputs.size();
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) slots[node.outputs[i]] = outputs.at(i);
      flat_.layers[index].end = flat_.layers.size();
      flat_.layers[index].outputs = std::move(outputs);
    }
    return outside(graph.outputs());
  }

  FlatGraph flat_;
};

}  // namespace

FlatGraph flatten(const Graph& graph) { return Flattener(graph).take(); }

LayerRange range_of(const FlatGraph& flat, const std::string& name) {
  for (size_t i = 0; i < flat.layers.size(); ++i) {
    if (flat.layers[i].name == name) return {i, flat.layers[i].end};
  }
  throw Error("no layer is called '" + name + "'");
}

}  // namespace trainrun
