#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/graph/operation.h"
#include "registry/tensors/component_error.h"

namespace trainrun {

class Plan;

/// One step of running a model. Slots number the tensors that flow through the model, its inputs first.
struct PlanStep {
  std::shared_ptr<const Operation> operation;
  std::vector<size_t> inputs;
  std::vector<size_t> outputs;
  std::vector<size_t> released;  // slots that no later step reads
  std::string layer;             // its name in the state dict: "layer1.0.conv2"; "1 + 2" of layers that are fused
  std::string type;              // "Conv2d"; "ReLU + MaxPool2d"
  std::string fusion;            // what fused them; "" where it is one layer
  std::string positions;         // of [N, T, …] those that it computes, "the first"; "" for all
  ComponentName name;            // for messages: the layer of the recipe
  bool computes = true;          // false for a step that is not a layer's own, such as gathering parameters
  size_t first = 0;              // the layers that it computes: their first index in the FlatGraph,
  size_t end = 0;                // and the index after the last,
  std::vector<size_t> leaves{};  // and of each of those that are not containers, its index
  std::shared_ptr<const Plan> inside{};  // of layers that the backward pass computes again: their steps; else null
};

/// How a graph is run; the passes (passes.h) make it.
class Plan {
 public:
  std::vector<PlanStep> steps;
  std::vector<size_t> outputs;
  size_t num_slots = 0;

  /// Computes the model's outputs. Throws ComponentError, which names the layer that failed.
  Tensors run(const Tensors& inputs) const;
  /// The same with what `compute` gives for a step and its inputs.
  Tensors run(const Tensors& inputs, const std::function<Tensors(const PlanStep&, const Tensors&)>& compute) const;
};

/// Says after which step each tensor may go: the last thing that is done to a plan.
void find_released(Plan& plan);

}  // namespace trainrun
