#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/fusion.h"
#include "registry/graph/plan.h"

namespace trainrun {

class Graph;

/// What is done before a layer computes and after it, such as gathering its parameters and releasing them.
struct Bracket {
  std::string layer;  // its name in the state dict; it may be a container
  std::function<void()> before;
  std::function<void(Tensors& outputs)> after;  // may put others in the outputs' place; null: nothing
};

/// What a plan has beyond the layers as they are.
struct PlanOptions {
  std::shared_ptr<const FusionRegistry> fusions;  // null: none
  std::vector<Bracket> brackets;                  // around the same layer, a later one is around an earlier one
  /// What takes the place of a step's operation, such as one that measures it; null: nothing.
  std::function<std::shared_ptr<const Operation>(const PlanStep& step)> measure;
};

/// Steps that compute what the graph's layers say. The graph must live as long as the plan. Throws Error where a
/// bracket names no layer.
Plan make_plan(const Graph& graph, const PlanOptions& options = {});

}  // namespace trainrun
