#include "registry/graph/fusing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace trainrun {
namespace {

using Node = FusionPattern::Node;

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The steps of a plan, with who makes and who reads each slot.
class Steps {
 public:
  explicit Steps(Plan& plan) : plan_(plan) { index(); }

  size_t size() const { return plan_.steps.size(); }
  const PlanStep& operator[](size_t i) const { return plan_.steps[i]; }
  const std::vector<size_t>& readers(size_t slot) const { return readers_[slot]; }
  /// The step that makes what is in the slot; none makes the model's inputs.
  std::optional<size_t> maker(size_t slot) const { return makers_[slot]; }
  bool is_output(size_t slot) const {
    return std::find(plan_.outputs.begin(), plan_.outputs.end(), slot) != plan_.outputs.end();
  }

  /// Takes the steps at `removed` out, and puts `step` in front of the one at `position`.
  void replace(const std::set<size_t>& removed, size_t position, const PlanStep& step) {
    std::vector<PlanStep> steps;
    for (size_t i = 0; i <= plan_.steps.size(); ++i) {
      if (i == position) steps.push_back(step);
      if (i < plan_.steps.size() && !removed.contains(i)) steps.push_back(std::move(plan_.steps[i]));
    }
    plan_.steps = std::move(steps);
    index();
  }

 private:
  void index() {
    readers_.assign(plan_.num_slots, {});
    makers_.assign(plan_.num_slots, std::nullopt);
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      for (const size_t slot : step.inputs) {
        if (readers_[slot].empty() || readers_[slot].back() != i) readers_[slot].push_back(i);
      }
      for (const size_t slot : step.outputs) makers_[slot] = i;
    }
  }

  Plan& plan_;
  std::vector<std::vector<size_t>> readers_;  // by slot
  std::vector<std::optional<size_t>> makers_;
};

/// Where a pattern was found.
struct Match {
  std::vector<size_t> steps;                                 // of the pattern's nodes, in their order
  std::vector<bool> turned = {};                             // whether the two inputs of each come the other way round
  std::vector<std::pair<std::string, size_t>> outside = {};  // slots that the fusion reads, by name or unnamed
};

/// Looks for a pattern by following the values that flow.
class Search {
 public:
  Search(const FlatGraph& flat, const Steps& steps, const FusionPattern& pattern)
      : flat_(flat), steps_(steps), pattern_(pattern) {}

  /// Calls `accept` for each match whose first node is at step `first`, until it returns true; returns whether it did.
  template <class Accept>
  bool from(size_t first, const Accept& accept) const {
    Match match;
    return bind(match, first, accept);
  }

 private:
  /// Binds the next node to the step, then those after it.
  template <class Accept>
  bool bind(const Match& before, size_t step, const Accept& accept) const {
    const Node& node = pattern_.nodes[before.steps.size()];
    const auto taken = std::find(before.steps.begin(), before.steps.end(), step);
    const PlanStep& found = steps_[step];
    if (taken != before.steps.end() || !found.fusion.empty()) return false;
    if (!contains(node.types, flat_.layers[found.first].node->type)) return false;
    if (bind_inputs(before, step, node.inputs, false, accept)) return true;
    return node.in_any_order && bind_inputs(before, step, {node.inputs[1], node.inputs[0]}, true, accept);
  }

  template <class Accept>
  bool bind_inputs(Match match, size_t step, const std::vector<std::string>& names, bool is_turned,
                   const Accept& accept) const {
    const std::vector<size_t>& slots = steps_[step].inputs;
    if (!names.empty() && names.size() != slots.size()) return false;
    for (size_t i = 0; i < slots.size(); ++i) {
      const std::string name = names.empty() ? "" : names[i];
      const auto known = slot_of(match, name);
      if (known && *known != slots[i]) return false;
      if (!known) match.outside.emplace_back(name, slots[i]);
    }
    match.steps.push_back(step);
    match.turned.push_back(is_turned);
    if (match.steps.size() == pattern_.nodes.size()) return accept(match);
    for (const std::string& name : pattern_.nodes[match.steps.size()].inputs) {
      const auto known = slot_of(match, name);
      if (!known) continue;
      for (const size_t reader : steps_.readers(*known)) {
        if (bind(match, reader, accept)) return true;
      }
      break;  // whoever is the next node reads this value
    }
    return false;
  }

  /// The slot that the name stands for, if that is known already.
  std::optional<size_t> slot_of(const Match& match, const std::string& name) const {
    for (size_t i = 0; i < match.steps.size(); ++i) {
      if (pattern_.nodes[i].name == name) return steps_[match.steps[i]].outputs[0];
    }
    for (const auto& [outside, slot] : match.outside) {
      if (!name.empty() && outside == name) return slot;
    }
    return std::nullopt;
  }

  const FlatGraph& flat_;
  const Steps& steps_;
  const FusionPattern& pattern_;
};

/// Whether the steps of a match may be one, and where that one would stand.
class FusedPlace {
 public:
  FusedPlace(const Steps& steps, const FusionPattern& pattern, const Match& match)
      : steps_(steps), pattern_(pattern), match_(match), own_(match.steps.begin(), match.steps.end()) {}

  const std::set<size_t>& own() const { return own_; }

  /// The slots that the fusion gives.
  std::vector<size_t> outputs() const {
    if (pattern_.gives.empty()) return steps_[match_.steps.back()].outputs;
    std::vector<size_t> slots;
    for (const std::string& given : pattern_.gives) {
      for (size_t i = 0; i < match_.steps.size(); ++i) {
        if (pattern_.nodes[i].name == given) slots.push_back(steps_[match_.steps[i]].outputs[0]);
      }
    }
    return slots;
  }

  /// The step that it is to stand in front of; nothing if it may not be.
  std::optional<size_t> find(const FusionBorders& borders) const {
    const std::vector<size_t> given = outputs();
    size_t position = *own_.rbegin() + 1;
    for (const size_t step : own_) {
      for (const size_t slot : steps_[step].outputs) {
        const bool is_given = std::find(given.begin(), given.end(), slot) != given.end();
        if (!is_given && steps_.is_output(slot)) return std::nullopt;
        for (const size_t reader : steps_.readers(slot)) {
          if (own_.contains(reader)) continue;
          if (!is_given) return std::nullopt;
          position = std::min(position, reader);
        }
      }
    }
    for (const auto& [name, slot] : match_.outside) {
      if (const auto maker = steps_.maker(slot); maker && *maker >= position) return std::nullopt;
    }
    if (!keeps_order(position) || crosses(borders.ranges, position)) return std::nullopt;
    const auto has_bracket = [&](size_t step) { return borders.bracketed.contains(steps_[step].first); };
    if (std::count_if(own_.begin(), own_.end(), has_bracket) > 1) return std::nullopt;
    return position;
  }

 private:
  /// Whether in-place changes, random draws and collective operations keep their order.
  bool keeps_order(size_t position) const {
    bool draws = false, waits = false;
    for (const size_t step : own_) {
      const Operation::Traits traits = steps_[step].operation->traits();
      if (traits.in_place && !is_alone(steps_[step])) return false;
      draws = draws || traits.random;
      waits = waits || traits.spans_ranks;
    }
    const size_t last = std::max(*own_.rbegin() + 1, position);
    for (size_t i = *own_.begin(); i < last; ++i) {
      if (own_.contains(i)) continue;
      const Operation::Traits traits = steps_[i].operation->traits();
      if (traits.in_place || (draws && traits.random) || (waits && traits.spans_ranks)) return false;
    }
    return true;
  }

  /// Whether nobody notices that the step leaves its input as it was: no other step reads it, nor another name of the
  /// same memory.
  bool is_alone(const PlanStep& step) const {
    const size_t slot = step.inputs[0];
    const auto maker = steps_.maker(slot);
    if (!maker) return false;  // it is an input of the model
    return steps_.readers(slot).size() == 1 && !steps_.is_output(slot) && !steps_[*maker].operation->traits().view;
  }

  bool crosses(const std::vector<LayerRange>& borders, size_t position) const {
    return std::any_of(borders.begin(), borders.end(), [&](const LayerRange& border) {
      std::optional<size_t> first;  // the steps within it
      size_t last = 0;
      size_t num_own = 0;
      for (size_t i = 0; i < steps_.size(); ++i) {
        if (steps_[i].first < border.first || steps_[i].end > border.end) continue;
        if (!first) first = i;
        last = i;
        num_own += own_.count(i);
      }
      if (num_own > 0) return num_own < own_.size();
      return first && position > *first && position <= last;
    });
  }

  const Steps& steps_;
  const FusionPattern& pattern_;
  const Match& match_;
  std::set<size_t> own_;
};

PlanStep fused_step(const Steps& steps, const FusedPlace& place, const Match& match, const std::string& fusion) {
  PlanStep fused = steps[*place.own().begin()];
  fused.layer = fused.type = fused.name.type = "";
  fused.leaves.clear();
  for (const size_t step : place.own()) {
    const std::string joint = step == *place.own().begin() ? "" : " + ";
    fused.layer += joint + steps[step].layer;
    fused.type += joint + steps[step].type;
    fused.name.type += joint + steps[step].name.type;
    fused.first = std::min(fused.first, steps[step].first);
    fused.end = std::max(fused.end, steps[step].end);
    fused.leaves.push_back(steps[step].first);
  }
  fused.fusion = fusion;
  fused.inputs.clear();
  for (const auto& [name, slot] : match.outside) fused.inputs.push_back(slot);
  fused.outputs = place.outputs();
  return fused;
}

}  // namespace

void fuse(const FlatGraph& flat, const std::vector<Fusion>& fusions, const FusionBorders& borders, Plan& plan) {
  Steps steps(plan);
  std::vector<const Fusion*> ordered;  // those of single layers last
  for (const Fusion& fusion : fusions) ordered.push_back(&fusion);
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const Fusion* fusion) { return fusion->pattern.nodes.size() > 1; });
  for (const Fusion* const next : ordered) {
    const Fusion& fusion = *next;
    const auto replace = [&](const Match& match) {
      const FusedPlace place(steps, fusion.pattern, match);
      const auto position = place.find(borders);
      if (!position) return false;
      std::map<std::string, FusedLayers::Found> nodes;
      for (size_t i = 0; i < match.steps.size(); ++i) {
        const GraphNode* const node = flat.layers[steps[match.steps[i]].first].node;
        nodes[fusion.pattern.nodes[i].name] = {node, match.turned[i]};
      }
      PlanStep fused = fused_step(steps, place, match, fusion.name);
      fused.operation = fusion.fuse(FusedLayers(std::move(nodes)));
      if (!fused.operation) return false;
      steps.replace(place.own(), *position, fused);
      return true;
    };
    for (size_t i = 0; i < steps.size();) {
      if (!Search(flat, steps, fusion.pattern).from(i, replace)) ++i;
    }
  }
}

}  // namespace trainrun
