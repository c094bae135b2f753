#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/component_error.h"
#include "registry/graph/operation.h"

namespace trainrun {

/// One thing that is done when a model computes. Slots number the tensors that flow: the model's inputs first.
struct PlanStep {
  std::shared_ptr<const Operation> operation;
  std::vector<size_t> inputs;
  std::vector<size_t> outputs;
  std::vector<size_t> released;  // slots that nothing reads after it
  std::string layer;             // its name in the state dict: "layer1.0.conv2"; "1 + 2" of layers that are fused
  std::string type;              // "Conv2d"; "ReLU + MaxPool2d"
  std::string fusion;            // what fused them; "" where it is one layer
  ComponentName name;            // for messages: the layer of the recipe
  bool computes = true;          // false: it is done beside a layer, which does not know of it
  size_t first = 0;              // the layers that it does: where they stand in the FlatGraph,
  size_t end = 0;                // and the one after them
};

/// How a graph is run: what the passes (passes.h) made of it.
class Plan {
 public:
  std::vector<PlanStep> steps;
  std::vector<size_t> outputs;
  size_t num_slots = 0;

  /// The model's outputs. Throws ComponentError, which names the layer that failed.
  Tensors run(const Tensors& inputs) const;
};

}  // namespace trainrun
