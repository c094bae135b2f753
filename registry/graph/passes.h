#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/graph/fusion.h"
#include "registry/graph/plan.h"

namespace trainrun {

class Graph;

/// Work to be done before and after a layer computes, such as gathering its parameters and releasing them.
struct Bracket {
  std::string layer;  // its name in the state dict; it may be a container
  std::function<void()> before;
  std::function<void(Tensors& outputs)> after;  // may replace the outputs; null for nothing
};

/// What a plan does beyond computing each layer by itself.
struct PlanOptions {
  std::shared_ptr<const FusionRegistry> fusions;  // null: none
  std::vector<Bracket> brackets;                  // of two around the same layer, the later one is the outer one
  std::vector<std::string> recomputed;            // layers, as Bracket::layer, that the backward pass computes again
  /// Returns the operation to be used in place of a step's, such as one that measures it; null for no replacement.
  std::function<std::shared_ptr<const Operation>(const PlanStep& step)> measure;
};

/// Makes the plan that computes the graph. The graph must live as long as the plan. A recomputed layer is one step or,
/// where brackets within divide it, several. Throws Error if a bracket names no layer.
Plan make_plan(const Graph& graph, const PlanOptions& options = {});

}  // namespace trainrun
