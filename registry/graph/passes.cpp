#include "registry/graph/passes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "registry/graph/casting.h"
#include "registry/graph/flatten.h"
#include "registry/graph/fusing.h"
#include "registry/graph/memory_order.h"
#include "registry/graph/needed_positions.h"
#include "registry/graph/passing_on.h"
#include "registry/graph/recomputed_steps.h"
#include "registry/language/error.h"

// How a graph becomes a plan: the passes, one after the other, as make_plan at the end of this page calls them.

namespace trainrun {
namespace {

/// A step for each layer that computes.
Plan steps_of(const FlatGraph& flat) {
  Plan plan;
  plan.outputs = flat.outputs;
  plan.num_slots = flat.num_slots;
  for (size_t i = 0; i < flat.layers.size(); ++i) {
    const FlatLayer& layer = flat.layers[i];
    if (!layer.is_leaf()) continue;
    PlanStep step;
    step.operation = layer.node->layer.operation;
    step.inputs = layer.inputs;
    step.outputs = layer.outputs;
    step.layer = layer.name;
    step.type = layer.node->type;
    step.name = name_of(*layer.written);
    step.first = i;
    step.end = i + 1;
    step.leaves = {i};
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

/// What fusions must not join: the layers of brackets, and those that are computed again.
FusionBorders borders_of(const FlatGraph& flat, const PlanOptions& options) {
  FusionBorders borders;
  for (const Bracket& bracket : options.brackets) {
    const LayerRange range = range_of(flat, bracket.layer);
    if (flat.layers[range.first].is_leaf()) {
      borders.bracketed.insert(range.first);
    } else {
      borders.ranges.push_back(range);
    }
  }
  for (const std::string& layer : options.recomputed) borders.ranges.push_back(range_of(flat, layer));
  return borders;
}

bool is_output(const Plan& plan, size_t slot) {
  return std::find(plan.outputs.begin(), plan.outputs.end(), slot) != plan.outputs.end();
}

// --- order in memory ---

/// Where no layer draws random numbers, the order in which outputs lie in memory shows in the order of sums alone. (A
/// loss may draw for the model's outputs.)
void free_orders(const FlatGraph& flat, Plan& plan) {
  const bool draws = std::any_of(flat.layers.begin(), flat.layers.end(), [](const FlatLayer& layer) {
    return layer.is_leaf() && layer.node->layer.operation->traits().random;
  });
  if (draws) return;
  for (PlanStep& step : plan.steps) {
    const auto* const keeper = dynamic_cast<const KeepsMemoryOrder*>(step.operation.get());
    if (keeper && !is_output(plan, step.outputs[0])) step.operation = keeper->in_any_order();
  }
}

// --- casts ---

/// Where the readers of a step's first output would cast it under autocast, the step gives it to them as they read it.
void share_casts(Plan& plan) {
  const size_t num_slots = plan.num_slots;
  std::vector<std::vector<PlanStep*>> readers(num_slots);
  for (PlanStep& step : plan.steps) {
    for (const size_t slot : step.inputs) readers[slot].push_back(&step);
  }
  for (PlanStep& step : plan.steps) {
    const auto* const giver = dynamic_cast<const CanCastOutput*>(step.operation.get());
    if (!giver) continue;
    const size_t slot = step.outputs[0];
    std::vector<PlanStep*> casting;
    bool may_change = false;  // by somebody who reads the output itself, or a view of it
    for (PlanStep* reader : readers[slot]) {
      if (dynamic_cast<const CastsInputs*>(reader->operation.get())) {
        casting.push_back(reader);
      } else {
        const Operation::Traits traits = reader->operation->traits();
        may_change = may_change || traits.in_place || traits.view;
      }
    }
    if (casting.empty() || may_change) continue;
    const bool only = casting.size() == readers[slot].size() && !is_output(plan, slot);
    step.operation = giver->with_cast_output(only);
    if (only) continue;
    for (PlanStep* reader : casting) {
      std::replace(reader->inputs.begin(), reader->inputs.end(), slot, plan.num_slots);
    }
    step.outputs.push_back(plan.num_slots++);
  }
}

// --- passing on ---

/// Where two steps read one value and the first of them can pass it on to the second, which does not change it, that one
/// reads it from there.
void pass_on(Plan& plan) {
  struct Reader {
    PlanStep* step;
    size_t input;
  };
  std::vector<std::vector<Reader>> readers(plan.num_slots);
  for (PlanStep& step : plan.steps) {
    for (size_t i = 0; i < step.inputs.size(); ++i) readers[step.inputs[i]].push_back({&step, i});
  }
  for (size_t slot = 0; slot < readers.size(); ++slot) {
    if (readers[slot].size() != 2 || is_output(plan, slot)) continue;
    const Reader first = readers[slot][0], second = readers[slot][1];
    const Operation::Traits traits = second.step->operation->traits();
    if (first.step == second.step || first.input != 0 || traits.in_place || traits.view) continue;
    const auto* const passer = dynamic_cast<const CanPassOnInput*>(first.step->operation.get());
    auto passing_on = passer ? passer->passing_on() : nullptr;
    if (!passing_on) continue;
    first.step->operation = std::move(passing_on);
    first.step->outputs.push_back(plan.num_slots);
    second.step->inputs[second.input] = plan.num_slots++;
  }
}

// --- brackets ---

/// `action` gets what is in the `slots`, and may put others there.
PlanStep beside(const FlatLayer& layer, const std::vector<size_t>& slots, std::function<void(Tensors&)> action) {
  PlanStep step;
  step.operation = operation_of(
      [action = std::move(action)](const Tensors& tensors) -> Tensors {
        Tensors changed = tensors;
        action(changed);
        return changed;
      },
      {.spans_ranks = true});
  step.inputs = slots;
  step.outputs = slots;
  step.layer = layer.name;
  step.type = layer.node->type;
  step.name = name_of(*layer.written);
  step.computes = false;
  return step;
}

/// Whether a step computes a leaf, maybe with others that are fused with it, or something within a container.
bool computes_of(const PlanStep& step, const FlatGraph& flat, const LayerRange& range) {
  if (!flat.layers[range.first].is_leaf()) return step.first >= range.first && step.end <= range.end;
  return std::find(step.leaves.begin(), step.leaves.end(), range.first) != step.leaves.end();
}

/// Puts each bracket's steps around those of its layer.
void add_brackets(const FlatGraph& flat, const std::vector<Bracket>& brackets, Plan& plan) {
  std::vector<size_t> order(brackets.size());  // from the outermost to the innermost
  std::iota(order.begin(), order.end(), size_t{0});
  std::reverse(order.begin(), order.end());
  std::vector<LayerRange> ranges;
  for (const Bracket& bracket : brackets) ranges.push_back(range_of(flat, bracket.layer));
  const auto depth = [&](size_t i) { return flat.layers[ranges[i].first].depth; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return depth(a) < depth(b); });

  std::map<size_t, std::vector<PlanStep>> before;  // by the step that they come before
  std::map<size_t, std::vector<PlanStep>> after;   // by the step that they come after, the outermost first
  for (const size_t i : order) {
    std::optional<size_t> first_step;
    size_t last_step = 0;
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      if (!computes_of(plan.steps[s], flat, ranges[i])) continue;
      if (!first_step) first_step = s;
      last_step = s;
    }
    if (!first_step) throw Error("no layer within '" + brackets[i].layer + "' computes");
    const FlatLayer& layer = flat.layers[ranges[i].first];
    const auto& given = layer.is_leaf() ? plan.steps[last_step].outputs : layer.outputs;
    before[*first_step].push_back(beside(layer, {}, [action = brackets[i].before](Tensors&) { action(); }));
    if (brackets[i].after) after[last_step].push_back(beside(layer, given, brackets[i].after));
  }
  std::vector<PlanStep> steps;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    for (PlanStep& step : before[s]) steps.push_back(std::move(step));
    steps.push_back(std::move(plan.steps[s]));
    std::vector<PlanStep>& later = after[s];
    for (auto step = later.rbegin(); step != later.rend(); ++step) steps.push_back(std::move(*step));
  }
  plan.steps = std::move(steps);
}

// --- layers that are computed again ---

/// Of layers within each other the outermost is computed again, as a whole but for what brackets within it divide.
void recompute(const FlatGraph& flat, const std::vector<std::string>& layers, Plan& plan) {
  if (layers.empty()) return;
  std::vector<LayerRange> ranges;
  for (const std::string& layer : layers) ranges.push_back(range_of(flat, layer));
  const auto around = [&](const PlanStep& step) {
    const LayerRange* found = nullptr;
    for (const LayerRange& range : ranges) {
      const bool is_within = step.computes && step.first >= range.first && step.end <= range.end;
      if (is_within && (!found || range.first < found->first || range.end > found->end)) found = &range;
    }
    return found;
  };
  std::vector<PlanStep> steps;
  for (size_t i = 0; i < plan.steps.size();) {
    const LayerRange* range = around(plan.steps[i]);
    size_t end = i + 1;
    while (range && end < plan.steps.size() && around(plan.steps[end]) == range) ++end;
    steps.push_back(range ? recomputed_step(flat, plan, i, end, flat.layers[range->first]) : plan.steps[i]);
    i = end;
  }
  plan.steps = std::move(steps);
}

// --- measuring ---

void measure(const PlanOptions& options, Plan& plan) {
  for (PlanStep& step : plan.steps) {
    if (auto measured = options.measure(step)) step.operation = std::move(measured);
  }
}

}  // namespace

Plan make_plan(const Graph& graph, const PlanOptions& options) {
  const FlatGraph flat = flatten(graph);
  Plan plan = steps_of(flat);
  if (options.fusions) {
    fuse(flat, options.fusions->entries(), borders_of(flat, options), plan);
    free_orders(flat, plan);
  }
  if (options.brackets.empty()) {  // a bracket hears of the outputs that the layer itself has
    if (options.fusions) leave_out_positions(flat, plan);
    share_casts(plan);
    pass_on(plan);
  }
  add_brackets(flat, options.brackets, plan);
  recompute(flat, options.recomputed, plan);
  if (options.measure) measure(options, plan);
  find_released(plan);
  return plan;
}

Tensors Graph::forward(const Tensors& inputs) {
  if (!plan_) plan_ = std::make_shared<const Plan>(make_plan(*this));
  return plan_->run(inputs);
}

}  // namespace trainrun
