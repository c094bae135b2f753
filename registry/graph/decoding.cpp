#include "registry/graph/decoding.h"

#include <algorithm>
#include <set>

#include "registry/graph/flatten.h"

namespace trainrun {
namespace {

const DecodingOperation* decoding_operation(const std::shared_ptr<const Operation>& operation) {
  return dynamic_cast<const DecodingOperation*>(operation.get());
}

/// The layers that a step of their own computes and can go on with. A fusion that has taken a layer's place would not.
void collect_going_on(const Plan& plan, std::set<size_t>& layers) {
  for (const PlanStep& step : plan.steps) {
    if (step.leaves.size() == 1 && decoding_operation(step.operation)) layers.insert(step.leaves[0]);
    if (step.inside) collect_going_on(*step.inside, layers);
  }
}

}  // namespace

std::optional<std::string> undecodable_layer(const Graph& graph, const Plan& plan) {
  std::set<size_t> going_on;
  collect_going_on(plan, going_on);
  const FlatGraph flat = flatten(graph);
  for (size_t i = 0; i < flat.layers.size(); ++i) {
    const FlatLayer& layer = flat.layers[i];
    if (!layer.is_leaf() || going_on.contains(i) || layer.node->layer.operation->traits().position_wise) continue;
    return layer.written->path + ": " + layer.node->type;
  }
  return std::nullopt;
}

std::optional<int64_t> most_positions(const Graph& graph) {
  std::optional<int64_t> most;
  for (const FlatLayer& layer : flatten(graph).layers) {
    if (!layer.is_leaf()) continue;
    if (const auto own = layer.node->layer.operation->traits().max_length) most = std::min(most.value_or(*own), *own);
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
  return plan.run(inputs, [&](const PlanStep& step, const Tensors& arguments) -> Tensors {
    if (step.inside) return run_steps(*step.inside, arguments);
    const DecodingOperation* operation = decoding_operation(step.operation);
    if (!operation) return step.operation->run(arguments);
    if (next_memory_ == memories_.size()) memories_.emplace_back();
    return operation->run_further(arguments, point_, memories_[next_memory_++]);
  });
}

}  // namespace trainrun
