#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "registry/graph/fusion.h"
#include "registry/graph/passes.h"
#include "registry/kinds/graph_builder.h"
#include "tests/registry/support.h"

// Plans with fusions, for tests.

namespace trainrun::test {

inline std::shared_ptr<Graph> build_seeded(const std::string& yaml, const LayerInputs& inputs) {
  torch::manual_seed(5);
  return build(yaml, inputs);
}

inline PlanOptions with(const FusionRegistry& fusions) {
  PlanOptions options;
  options.fusions = std::make_shared<const FusionRegistry>(fusions);
  return options;
}

/// The layers that each step does.
inline std::vector<std::string> layers_of(const Plan& plan) {
  std::vector<std::string> layers;
  for (const PlanStep& step : plan.steps) layers.push_back(step.layer);
  return layers;
}

inline FusionRegistry only(const Fusion& fusion) {
  FusionRegistry registry;
  registry.add(fusion);
  return registry;
}

inline Strings fused(const std::string& yaml, const std::vector<int64_t>& shape, const FusionRegistry& fusions,
                     const std::vector<Bracket>& brackets = {}) {
  const auto graph = build_seeded(yaml, inputs_like(torch::zeros(shape)));
  PlanOptions options = with(fusions);
  options.brackets = brackets;
  return layers_of(make_plan(*graph, options));
}

/// Of layers with and without parameters, which it calls as they are.
inline FusionRegistry linear_relu() {
  return only({"LinearReLU", "", FusionPattern::chain({"Linear", "ReLU"}), [](const FusedLayers& layers) {
                 return operation_of([first = layers["0"].layer, second = layers["1"].layer](const Tensors& inputs) {
                   return second.forward(first.forward(inputs));
                 });
               }});
}

}  // namespace trainrun::test
