#include "registry/components/optimizers/grouped_optimizer.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "registry/kernels/optimizer_pass.h"

namespace trainrun {
namespace {

/// Fused kernels walk parameter and gradient side by side in memory, so their strides must be alike.
at::Tensor laid_out_like(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

}  // namespace

void multiply(const Tensors& gradients, const Tensors& factors) {
  if (gradients.empty()) return;
  for (const at::Tensor& factor : factors) at::_foreach_mul_(gradients, factor);
}

GroupedOptimizer::GroupedOptimizer(OptimizerInputs inputs, std::vector<std::string> list_names)
    : list_names_(std::move(list_names)) {
  for (ParameterGroup& group : inputs.groups)
    groups_.push_back({std::move(group), std::vector<Tensors>(list_names_.size())});
}

NamedTensors GroupedOptimizer::state() {
  NamedTensors state;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.parameters.names.size(); ++i) {
      for (size_t k = 0; k < list_names_.size(); ++k) {
        if (group.lists[k].empty() || !group.lists[k][i].defined()) continue;
        state.emplace_back(group.parameters.names[i] + "." + list_names_[k], group.lists[k][i]);
      }
    }
  }
  return state;
}

void GroupedOptimizer::forget_last_step() {
  numbers_.clear();
  begun_.clear();
}

void GroupedOptimizer::note_numbers(const BeforeStep& before) {
  numbers_.insert(numbers_.end(), before.numbers().begin(), before.numbers().end());
}

void GroupedOptimizer::last_step_was_skipped() {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& [number, before] : numbers_) number.copy_(before);
  for (at::Tensor* state : begun_) state->reset();
  forget_last_step();
}

bool GroupedOptimizer::is_for_pass(const Active& now, const StepContext& context) {
  return !context.overflow.defined() &&
         std::all_of(now.parameters.begin(), now.parameters.end(), kernels::is_for_optimizer_pass);
}

GroupedOptimizer::Active GroupedOptimizer::active(const Group& group) const {
  Active active;
  active.lists.resize(group.lists.size());
  for (size_t i = 0; i < group.parameters.tensors.size(); ++i) {
    const at::Tensor& parameter = group.parameters.tensors[i];
    if (!parameter.grad().defined()) continue;
    active.indices.push_back(i);
    active.parameters.push_back(parameter);
    active.gradients.push_back(laid_out_like(parameter.grad(), parameter));
    for (size_t k = 0; k < group.lists.size(); ++k) {
      if (!group.lists[k].empty()) active.lists[k].push_back(group.lists[k][i]);
    }
  }
  return active;
}

}  // namespace trainrun
