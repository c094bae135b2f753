#include "registry/graph/plan.h"

#include <algorithm>
#include <map>

namespace trainrun {
namespace {

/// What a step gives; where it fails, a ComponentError names it.
Tensors outputs_of(const PlanStep& step, const Tensors& inputs, const auto& compute) {
  try {
    Tensors outputs = compute(step, inputs);
    if (BackwardTrace* trace = BackwardTrace::current(); trace && step.computes) trace->watch(step.name, outputs);
    return outputs;
  } catch (const std::exception& error) {
    throw_component_error(step.name, inputs, error);
  }
}

}  // namespace

Tensors Plan::run(const Tensors& inputs) const {
  return run(inputs, [](const PlanStep& step, const Tensors& given) { return step.operation->run(given); });
}

Tensors Plan::run(const Tensors& inputs, const std::function<Tensors(const PlanStep&, const Tensors&)>& compute) const {
  Tensors slots(num_slots);
  std::copy(inputs.begin(), inputs.end(), slots.begin());
  Tensors arguments;
  for (const PlanStep& step : steps) {
    for (const size_t slot : step.inputs) arguments.push_back(slots[slot]);
    Tensors given = outputs_of(step, arguments, compute);
    arguments.clear();
    for (size_t i = 0; i < step.outputs.size(); ++i) slots[step.outputs[i]] = std::move(given[i]);
    for (const size_t slot : step.released) slots[slot].reset();
  }
  Tensors result;
  for (const size_t slot : outputs) result.push_back(slots[slot]);
  return result;
}

void find_released(Plan& plan) {
  std::map<size_t, size_t> last;  // by slot: the step that reads it last, or makes it in vain
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    for (const size_t slot : plan.steps[i].outputs) last[slot] = i;
    for (const size_t slot : plan.steps[i].inputs) last[slot] = i;
  }
  for (const size_t slot : plan.outputs) last.erase(slot);
  for (const auto& [slot, step] : last) plan.steps[step].released.push_back(slot);
}

}  // namespace trainrun
