#include "registry/graph/needed_positions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "registry/graph/casting.h"
#include "registry/graph/position_steps.h"
#include "registry/graph/positions.h"

namespace trainrun {
namespace {

using Read = ReadsPositions::Read;

/// Which positions of a tensor something reads, or which it holds.
struct Positions {
  enum class Kind { kNone, kFirst, kMasked, kAll };
  Kind kind = Kind::kNone;
  size_t mask = 0;  // of kMasked: the slot of the mask

  bool operator==(const Positions&) const = default;
  bool are_some() const { return kind == Kind::kFirst || kind == Kind::kMasked; }
};

constexpr Positions kAllPositions{.kind = Positions::Kind::kAll};

/// The least that has both. The first positions are among the masked ones.
Positions joined(const Positions& a, const Positions& b) {
  if (a.kind == Positions::Kind::kMasked && b.kind == Positions::Kind::kMasked && a.mask != b.mask) {
    return kAllPositions;
  }
  return a.kind < b.kind ? b : a;
}

/// What is known of a plan's slots and steps before it runs.
class Facts {
 public:
  Facts(const FlatGraph& flat, const Plan& plan)
      : flat_(flat), shapes_(plan.num_slots), is_made_(plan.num_slots), is_in_order_(plan.num_slots) {
    for (const FlatLayer& layer : flat.layers) add(layer);
  }

  /// Whether it is a tensor [N, T, …], and of the same N and T as the other.
  bool are_alike(size_t slot, size_t other) const {
    const auto& one = shapes_[slot];
    const auto& two = shapes_[other];
    return one.size() >= 2 && two.size() >= 2 && std::equal(one.begin(), one.begin() + 2, two.begin());
  }
  bool is_in_order(size_t slot) const { return is_in_order_[slot]; }
  size_t num_dims(size_t slot) const { return shapes_[slot].size(); }
  /// [N, T], and there before the first step.
  bool is_mask(size_t slot) const { return shapes_[slot].size() == 2 && !is_made_[slot]; }

  /// Whether the step computes each position from its inputs at that position, and draws in an order that is known.
  bool is_position_wise(const PlanStep& step) const {
    const Operation::Traits own = step.operation->traits();
    if (own.in_place || own.spans_ranks || step.inputs.empty() || step.outputs.empty()) return false;
    const auto fits = [&](size_t slot) { return are_alike(slot, step.outputs[0]); };
    return num_dims(step.outputs[0]) >= 3 && std::all_of(step.inputs.begin(), step.inputs.end(), fits) &&
           std::all_of(step.outputs.begin(), step.outputs.end(), fits) &&
           std::all_of(step.leaves.begin(), step.leaves.end(), [&](size_t leaf) {
             const Operation::Traits traits = flat_.layers[leaf].node->layer.operation->traits();
             return traits.position_wise && (!traits.random || is_in_order(flat_.layers[leaf].inputs[0]));
           });
  }

 private:
  void add(const FlatLayer& layer) {
    const GraphNode& node = *layer.node;
    for (size_t i = 0; i < layer.inputs.size(); ++i) shapes_[layer.inputs[i]] = node.input_shapes.at(i);
    if (!layer.is_leaf()) return;
    for (size_t i = 0; i < layer.outputs.size(); ++i) {
      shapes_[layer.outputs[i]] = node.output_shapes.at(i);
      is_made_[layer.outputs[i]] = true;
    }
    const Operation& operation = *node.layer.operation;
    const auto keeps = [&](size_t slot) { return is_in_order(slot) && shapes_[slot] == shapes_[layer.outputs[0]]; };
    const bool keeps_order = operation.traits().pointwise && !layer.inputs.empty() &&
                             std::all_of(layer.inputs.begin(), layer.inputs.end(), keeps);
    is_in_order_[layer.outputs.at(0)] = keeps_order || dynamic_cast<const LaysOutInOrder*>(&operation);
  }

  const FlatGraph& flat_;
  std::vector<std::vector<int64_t>> shapes_;  // with the example batch
  std::vector<bool> is_made_;                 // by a step: it is none of the model's inputs
  std::vector<bool> is_in_order_;             // it lies in memory in the order of its dimensions, without gaps
};

/// For each slot, the positions that something reads: found from the last step to the first.
class Needs {
 public:
  Needs(const Facts& facts, const Plan& plan) : facts_(facts), needs_(plan.num_slots) {
    for (const size_t slot : plan.outputs) needs_[slot] = kAllPositions;
    for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) add(*step);
  }

  /// What is read of a step's outputs.
  Positions of(const PlanStep& step) const {
    Positions all;
    for (const size_t slot : step.outputs) all = joined(all, needs_[slot]);
    return all.kind == Positions::Kind::kNone ? kAllPositions : all;
  }

 private:
  void add(const PlanStep& step) {
    if (facts_.is_position_wise(step)) {
      for (const size_t slot : step.inputs) need(slot, of(step));
      return;
    }
    const auto* const reader = dynamic_cast<const ReadsPositions*>(step.operation.get());
    const ReadsPositions::Reads reads = reader ? reader->reads(step.inputs.size()) : ReadsPositions::Reads();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      need(step.inputs[i], i < reads.inputs.size() ? read(step, reads, i) : kAllPositions);
    }
  }

  Positions read(const PlanStep& step, const ReadsPositions::Reads& reads, size_t input) const {
    const size_t slot = step.inputs[input];
    if (!facts_.is_in_order(slot) || facts_.num_dims(slot) < 3) return kAllPositions;  // its readers may show the order
    switch (reads.inputs[input]) {
      case Read::kFirst:
        return {.kind = Positions::Kind::kFirst};
      case Read::kAsOutput:
        return facts_.are_alike(slot, step.outputs[0]) ? of(step) : kAllPositions;
      case Read::kMasked: {
        const size_t mask = step.inputs[reads.mask.value()];
        const bool fits = facts_.is_mask(mask) && facts_.are_alike(slot, mask);
        return fits ? Positions{Positions::Kind::kMasked, mask} : kAllPositions;
      }
      case Read::kAll:
        break;
    }
    return kAllPositions;
  }

  void need(size_t slot, const Positions& positions) { needs_[slot] = joined(needs_[slot], positions); }

  const Facts& facts_;
  std::vector<Positions> needs_;
};

/// Those that a step mixes which can do so with them alone, where no others of its inputs are computed.
std::optional<Positions> mixed_positions(const PlanStep& step, const std::function<Positions(size_t slot)>& computed) {
  const auto* const reader = dynamic_cast<const ReadsPositions*>(step.operation.get());
  if (!reader || !dynamic_cast<const ComputesSomePositions*>(step.operation.get())) return std::nullopt;
  const ReadsPositions::Reads reads = reader->reads(step.inputs.size());
  if (!reads.mask) return std::nullopt;
  const Positions marked{Positions::Kind::kMasked, step.inputs[*reads.mask]};
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (reads.inputs[i] != Read::kAll && computed(step.inputs[i]) != marked) return std::nullopt;
  }
  return marked;
}

/// For each step, the positions that it computes. Those of one that multiplies nothing would cost as much to take and
/// put back as it saves, unless a step before or after it computes as few.
std::vector<Positions> computed_positions(const Facts& facts, const Plan& plan) {
  const Needs needs(facts, plan);
  const size_t count = plan.steps.size();
  std::vector<Positions> computed(count, kAllPositions);
  std::vector<std::optional<size_t>> makers(plan.num_slots);
  std::vector<std::vector<size_t>> neighbours(count);
  for (size_t i = 0; i < count; ++i) {
    const PlanStep& step = plan.steps[i];
    for (const size_t slot : step.inputs) {
      if (!makers[slot]) continue;
      neighbours[i].push_back(*makers[slot]);
      neighbours[*makers[slot]].push_back(i);
    }
    for (const size_t slot : step.outputs) makers[slot] = i;
    const bool may_draw =
        !step.operation->traits().random || dynamic_cast<const ComputesSomePositions*>(step.operation.get()) != nullptr;
    if (may_draw && facts.is_position_wise(step)) computed[i] = needs.of(step);
    const auto computed_of = [&](size_t slot) { return makers[slot] ? computed[*makers[slot]] : kAllPositions; };
    if (const auto marked = mixed_positions(step, computed_of); marked && needs.of(step).are_some()) {
      computed[i] = *marked;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (dynamic_cast<const CastsInputs*>(plan.steps[i].operation.get())) continue;
    const auto computes_some = [&](size_t other) { return computed[other].are_some(); };
    if (std::none_of(neighbours[i].begin(), neighbours[i].end(), computes_some)) computed[i] = kAllPositions;
  }
  return computed;
}

/// Writes the steps anew, with those between them that take positions and put them back.
class Writer {
 public:
  explicit Writer(Plan& plan) : plan_(plan), held_(plan.num_slots) {}

  void write(const std::vector<Positions>& computed) {
    const std::vector<PlanStep> old = std::move(plan_.steps);
    plan_.steps.clear();
    for (size_t i = 0; i < old.size(); ++i) write(old[i], computed[i]);
    plan_.steps.insert(plan_.steps.begin(), lists_.begin(), lists_.end());
  }

 private:
  using Kind = Positions::Kind;

  /// The positions that a slot holds, and a slot [N, T, …] that holds all.
  struct Held {
    Positions positions = kAllPositions;
    size_t sizes = 0;  // not of all positions: the slot is that itself
  };

  void write(PlanStep step, const Positions& computed) {
    Positions wanted = computed;
    const auto* const reader = dynamic_cast<const ReadsPositions*>(step.operation.get());
    const ReadsPositions::Reads reads = reader ? reader->reads(step.inputs.size()) : ReadsPositions::Reads();
    const bool reads_first = reads.inputs == std::vector<Read>{Read::kFirst};
    if (reads_first && held_[step.inputs[0]].positions.are_some()) wanted = {.kind = Kind::kFirst};
    const size_t sizes = wanted.kind == Kind::kMasked ? wanted.mask : sizes_of(step.inputs);
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const bool is_whole = i < reads.inputs.size() && reads.inputs[i] == Read::kAll;
      step.inputs[i] = at(step.inputs[i], is_whole ? kAllPositions : wanted, step);
    }
    if (computed.are_some() && (reader || step.operation->traits().random)) tell_positions(step, computed, sizes);
    for (const size_t slot : step.outputs) held_[slot] = {computed, sizes};
    if (computed.are_some()) step.positions = computed.kind == Kind::kFirst ? "the first" : "without padding";
    plan_.steps.push_back(std::move(step));
  }

  /// A slot of all positions that those which are read first are some of.
  size_t sizes_of(const std::vector<size_t>& slots) const {
    if (slots.empty()) return 0;
    const Held& first = held_[slots[0]];
    return first.positions.are_some() ? first.sizes : slots[0];
  }

  void tell_positions(PlanStep& step, const Positions& positions, size_t sizes) {
    step.operation = dynamic_cast<const ComputesSomePositions&>(*step.operation).at_positions();
    const bool is_masked = positions.kind == Kind::kMasked;
    step.inputs.push_back(sizes);
    step.inputs.push_back(is_masked ? masked(positions.mask) : add(list_first(), {sizes}, "first positions", step));
  }

  /// The slot that holds what is in `slot`, at these positions.
  size_t at(size_t slot, const Positions& wanted, const PlanStep& reader) {
    const Held held = held_[slot];
    if (held.positions == wanted) return slot;
    const auto [found, is_new] = moved_.try_emplace({slot, wanted.kind, wanted.mask});
    if (is_new) found->second = move(slot, held, wanted, reader);
    return found->second;
  }

  size_t move(size_t slot, const Held& held, const Positions& wanted, const PlanStep& reader) {
    const bool to_first = wanted.kind == Kind::kFirst;
    switch (held.positions.kind) {
      case Kind::kMasked: {
        const std::vector<size_t> inputs = {slot, masked(held.positions.mask), held.positions.mask};
        return to_first ? add(take_first_of_masked(), inputs, "first positions", reader)
                        : add(put_masked_back(), inputs, "with padding", reader);
      }
      case Kind::kFirst:
        return add(put_first_back(), {slot, held.sizes}, "all positions", reader);
      default:
        return to_first ? add(take_first(), {slot}, "first positions", reader)
                        : add(take_masked(), {slot, masked(wanted.mask), wanted.mask}, "without padding", reader);
    }
  }

  /// The slot of the numbers of those that the mask marks.
  size_t masked(size_t mask) {
    const auto [found, is_new] = masked_.try_emplace(mask, plan_.num_slots);
    if (is_new) {
      PlanStep step;
      step.operation = list_masked();
      step.inputs = {mask};
      step.outputs = {plan_.num_slots++};
      step.type = "positions without padding";
      step.computes = false;
      lists_.push_back(std::move(step));
    }
    return found->second;
  }

  size_t add(std::shared_ptr<const Operation> operation, std::vector<size_t> inputs, const std::string& type,
             const PlanStep& reader) {
    PlanStep step;
    step.operation = std::move(operation);
    step.inputs = std::move(inputs);
    step.outputs = {plan_.num_slots++};
    step.layer = reader.layer;
    step.type = type;
    step.name = reader.name;
    step.first = reader.first;
    step.end = reader.end;
    plan_.steps.push_back(std::move(step));
    return plan_.steps.back().outputs[0];
  }

  Plan& plan_;
  std::vector<Held> held_;                                    // by slot of the plan as it was
  std::map<std::tuple<size_t, Kind, size_t>, size_t> moved_;  // the slots of what was taken or put back
  std::map<size_t, size_t> masked_;                           // by mask: the slot of the positions' numbers
  std::vector<PlanStep> lists_;                               // which give these, before all other steps
};

}  // namespace

void leave_out_positions(const FlatGraph& flat, Plan& plan) {
  const auto overwrites = [](const PlanStep& step) { return step.operation->traits().in_place; };
  if (std::any_of(plan.steps.begin(), plan.steps.end(), overwrites)) return;  // others see what is overwritten
  const Facts facts(flat, plan);
  const std::vector<Positions> computed = computed_positions(facts, plan);
  const auto are_some = [](const Positions& positions) { return positions.are_some(); };
  if (std::any_of(computed.begin(), computed.end(), are_some)) Writer(plan).write(computed);
}

}  // namespace trainrun
