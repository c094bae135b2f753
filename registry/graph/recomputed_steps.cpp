#include "registry/graph/recomputed_steps.h"

#include <algorithm>
#include <map>
#include <set>

#include "registry/graph/recomputation.h"

namespace trainrun {
namespace {

/// Makes some steps of a plan, which follow each other, a plan of their own.
class Joiner {
 public:
  Joiner(const FlatGraph& flat, const Plan& plan, size_t begin, size_t end)
      : flat_(flat), plan_(plan), begin_(begin), end_(end) {}

  /// One step in their place, under the name of `layer`, in which they lie.
  PlanStep join(const FlatLayer& layer) {
    PlanStep joined = plan_.steps[begin_];
    joined.end = plan_.steps[end_ - 1].end;
    joined.layer = layer.name;
    joined.type = layer.node->type;
    joined.name = name_of(*layer.written);
    joined.fusion = "";
    find_slots(joined);
    auto inside = std::make_shared<Plan>();
    inside->steps.assign(plan_.steps.begin() + static_cast<std::ptrdiff_t>(begin_),
                         plan_.steps.begin() + static_cast<std::ptrdiff_t>(end_));
    for (PlanStep& step : inside->steps) {
      for (size_t& slot : step.inputs) slot = inner_.at(slot);
      for (size_t& slot : step.outputs) slot = inner_.at(slot);
    }
    for (const size_t slot : joined.outputs) inside->outputs.push_back(inner_.at(slot));
    inside->num_slots = inner_.size();
    find_released(*inside);
    joined.operation = recomputed(inside, buffers(), changes_inputs(*inside, joined.inputs.size()));
    joined.inside = std::move(inside);
    return joined;
  }

 private:
  /// Which slots the steps read and which of theirs are read elsewhere, and the numbers of all of them inside.
  void find_slots(PlanStep& joined) {
    joined.inputs.clear();
    joined.outputs.clear();
    std::set<size_t> made;
    for (size_t i = begin_; i < end_; ++i) {
      for (const size_t slot : plan_.steps[i].inputs) {
        if (!made.contains(slot) && inner_.try_emplace(slot, inner_.size()).second) joined.inputs.push_back(slot);
      }
      made.insert(plan_.steps[i].outputs.begin(), plan_.steps[i].outputs.end());
    }
    std::set<size_t> read(plan_.outputs.begin(), plan_.outputs.end());
    for (size_t i = end_; i < plan_.steps.size(); ++i) {
      read.insert(plan_.steps[i].inputs.begin(), plan_.steps[i].inputs.end());
    }
    for (const size_t slot : made) {
      inner_.try_emplace(slot, inner_.size());
      if (read.contains(slot)) joined.outputs.push_back(slot);
    }
  }

  Tensors buffers() const {
    Tensors buffers;
    std::set<const at::TensorImpl*> seen;
    for (size_t i = plan_.steps[begin_].first; i < plan_.steps[end_ - 1].end; ++i) {
      const FlatLayer& layer = flat_.layers[i];
      if (!layer.is_leaf() || !layer.node->layer.state) continue;
      for (const at::Tensor& buffer : layer.node->layer.state->buffers()) {
        if (buffer.defined() && seen.insert(buffer.unsafeGetTensorImpl()).second) buffers.push_back(buffer);
      }
    }
    return buffers;
  }

  /// Whether a step may write into one of the first `num_inputs` slots, or into what shares memory with it.
  static bool changes_inputs(const Plan& inside, size_t num_inputs) {
    std::vector<bool> is_shared(inside.num_slots);
    std::fill_n(is_shared.begin(), num_inputs, true);
    for (const PlanStep& step : inside.steps) {
      const Operation::Traits traits = step.operation->traits();
      if (std::none_of(step.inputs.begin(), step.inputs.end(), [&](size_t slot) { return is_shared[slot]; })) continue;
      if (traits.in_place) return true;
      for (const size_t slot : step.outputs) is_shared[slot] = traits.view;
    }
    return false;
  }

  const FlatGraph& flat_;
  const Plan& plan_;
  size_t begin_;
  size_t end_;
  std::map<size_t, size_t> inner_;  // by slot of the plan: its slot inside
};

}  // namespace

PlanStep recomputed_step(const FlatGraph& flat, const Plan& plan, size_t begin, size_t end, const FlatLayer& layer) {
  return Joiner(flat, plan, begin, end).join(layer);
}

}  // namespace trainrun
