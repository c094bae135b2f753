#include "registry/graph/decoding.h"

#include <algorithm>
#include <set>

#include "registry/graph/flatten.h"

namespace trainrun {
namespace {

const DecodingOperation* decoding_operation(const std::shared_ptr<const Operation>& operation) {
  return dynamic_cast<const DecodingOperation*>(operation.get());
}

void collect_operations(const Plan& plan, std::set<const Operation*>& operations) {
  for (const PlanStep& step : plan.steps) {
    operations.insert(step.operation.get());
    if (step.inside) collect_operations(*step.inside, operations);
  }
}

}  // namespace

std::optional<std::string> undecodable_layer(const Graph& graph, const Plan& plan) {
  std::set<const Operation*> run;
  collect_operations(plan, run);
  const FlatGraph flat = flatten(graph);
  for (const FlatLayer& layer : flat.layers) {
    if (!layer.is_leaf()) continue;
    const std::shared_ptr<const Operation>& operation = layer.node->layer.operation;
    // A fusion that has taken its place in the plan would not go on where it stopped.
    const bool goes_on = decoding_operation(operation) && run.contains(operation.get());
    if (!goes_on && !operation->traits().position_wise) return layer.written->path + ": " + layer.node->type;
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
