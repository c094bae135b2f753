#include "registry/graph/passes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "registry/graph/flatten.h"
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
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

/// The layers from and to which a bracket reaches, as they stand in the FlatGraph.
struct Range {
  size_t first;
  size_t end;
};

Range range_of(const FlatGraph& flat, const std::string& name) {
  for (size_t i = 0; i < flat.layers.size(); ++i) {
    if (flat.layers[i].name == name) return {i, flat.layers[i].end};
  }
  throw Error("no layer is called '" + name + "'");
}

// --- fusions ---

class Fuser {
 public:
  Fuser(const FlatGraph& flat, const PlanOptions& options, Plan& plan) : flat_(flat), plan_(plan) {
    for (const Bracket& bracket : options.brackets) borders_.push_back(range_of(flat, bracket.layer));
    for (const std::string& layer : options.recomputed) borders_.push_back(range_of(flat, layer));
    for (const PlanStep& step : plan.steps) {
      for (const size_t slot : step.inputs) ++num_readers_[slot];
    }
    for (const size_t slot : plan.outputs) ++num_readers_[slot];
  }

  void run(const std::vector<Fusion>& fusions) {
    std::vector<PlanStep> steps;
    for (size_t i = 0; i < plan_.steps.size();) {
      std::optional<PlanStep> fused;
      size_t length = 1;
      for (const Fusion& fusion : fusions) {
        fused = try_at(i, fusion);
        if (!fused) continue;
        length = fusion.types.size();
        break;
      }
      steps.push_back(fused ? std::move(*fused) : plan_.steps[i]);
      i += length;
    }
    plan_.steps = std::move(steps);
  }

 private:
  const Graph::Node& node(const PlanStep& step) const { return *flat_.layers[step.first].node; }

  std::optional<PlanStep> try_at(size_t index, const Fusion& fusion) const {
    if (index + fusion.types.size() > plan_.steps.size()) return std::nullopt;
    const auto begin = plan_.steps.begin() + static_cast<std::ptrdiff_t>(index);
    const auto end = begin + static_cast<std::ptrdiff_t>(fusion.types.size());
    Fusion::Nodes nodes;
    for (auto step = begin; step != end; ++step) {
      if (node(*step).type != fusion.types[nodes.size()]) return std::nullopt;
      if (step != begin && !is_handed_on(*(step - 1), *step)) return std::nullopt;
      if (step->operation->traits().in_place && !is_alone(*step)) return std::nullopt;
      nodes.push_back(&node(*step));
    }
    if (crosses_border(begin->first, (end - 1)->end)) return std::nullopt;
    PlanStep fused = *begin;
    fused.operation = fusion.fuse(nodes);
    if (!fused.operation) return std::nullopt;
    fused.fusion = fusion.name;
    for (auto step = begin + 1; step != end; ++step) {
      fused.layer += " + " + step->layer;
      fused.type += " + " + step->type;
      fused.name.type += " + " + step->name.type;
    }
    fused.outputs = (end - 1)->outputs;
    fused.end = (end - 1)->end;
    return fused;
  }

  /// Whether `after` alone reads what `before` gives, and nothing else.
  bool is_handed_on(const PlanStep& before, const PlanStep& after) const {
    return before.outputs.size() == 1 && after.inputs == before.outputs && num_readers_.at(before.outputs[0]) == 1;
  }

  /// Whether nobody notices that the step leaves its input as it was: no other step reads it, nor another name of the
  /// same memory.
  bool is_alone(const PlanStep& step) const {
    for (const PlanStep& maker : plan_.steps) {
      const bool makes = std::find(maker.outputs.begin(), maker.outputs.end(), step.inputs[0]) != maker.outputs.end();
      if (makes) return num_readers_.at(step.inputs[0]) == 1 && !maker.operation->traits().view;
    }
    return false;  // it is an input of the model
  }

  /// Whether a bracket, or a layer that is computed again, begins or ends between the layers.
  bool crosses_border(size_t first, size_t end) const {
    return std::any_of(borders_.begin(), borders_.end(), [&](const Range& border) {
      const bool apart = border.end <= first || border.first >= end;
      const bool around = border.first <= first && border.end >= end;
      return !apart && !around;
    });
  }

  const FlatGraph& flat_;
  Plan& plan_;
  std::vector<Range> borders_;
  std::map<size_t, int> num_readers_;  // by slot; the model's outputs are read, too
};

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

/// Puts each bracket's steps around those of its layer.
void add_brackets(const FlatGraph& flat, const std::vector<Bracket>& brackets, Plan& plan) {
  std::vector<size_t> order(brackets.size());  // from the outermost to the innermost
  std::iota(order.begin(), order.end(), size_t{0});
  std::reverse(order.begin(), order.end());
  std::vector<Range> ranges;
  for (const Bracket& bracket : brackets) ranges.push_back(range_of(flat, bracket.layer));
  const auto depth = [&](size_t i) { return flat.layers[ranges[i].first].depth; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return depth(a) < depth(b); });

  std::map<size_t, std::vector<PlanStep>> before;  // by the step that they come before
  std::map<size_t, std::vector<PlanStep>> after;   // by the step that they come after, the outermost first
  for (const size_t i : order) {
    const auto [first, end] = ranges[i];
    std::optional<size_t> first_step;
    size_t last_step = 0;
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      if (plan.steps[s].first < first || plan.steps[s].end > end) continue;
      if (!first_step) first_step = s;
      last_step = s;
    }
    if (!first_step) throw Error("no layer within '" + brackets[i].layer + "' computes");
    const FlatLayer& layer = flat.layers[first];
    before[*first_step].push_back(beside(layer, {}, [action = brackets[i].before](Tensors&) { action(); }));
    if (brackets[i].after) after[last_step].push_back(beside(layer, layer.outputs, brackets[i].after));
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
  std::vector<Range> ranges;
  for (const std::string& layer : layers) ranges.push_back(range_of(flat, layer));
  const auto around = [&](const PlanStep& step) {
    const Range* found = nullptr;
    for (const Range& range : ranges) {
      const bool is_within = step.computes && step.first >= range.first && step.end <= range.end;
      if (is_within && (!found || range.first < found->first || range.end > found->end)) found = &range;
    }
    return found;
  };
  std::vector<PlanStep> steps;
  for (size_t i = 0; i < plan.steps.size();) {
    const Range* range = around(plan.steps[i]);
    size_t end = i + 1;
    while (range && end < plan.steps.size() && around(plan.steps[end]) == range) ++end;
    steps.push_back(range ? recomputed_step(flat, plan, i, end, flat.layers[range->first]) : plan.steps[i]);
    i = end;
  }
  plan.steps = std::move(steps);
}

// --- measuring ---

void measure(const PlanOptions& options, Plan& plan) {
  for (PlanStep& step : plan.steps) step.operation = options.measure(step);
}

}  // namespace

Plan make_plan(const Graph& graph, const PlanOptions& options) {
  const FlatGraph flat = flatten(graph);
  Plan plan = steps_of(flat);
  if (options.fusions) Fuser(flat, options, plan).run(options.fusions->entries());
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
