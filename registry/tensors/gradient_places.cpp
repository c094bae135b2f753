#include "registry/tensors/gradient_places.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/alias.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <unordered_map>

namespace trainrun {
namespace {

struct WantedGradient {
  at::Tensor memory;
  bool is_taken = false;
};

/// Of all models of this process; autograd may compute gradients on several threads.
struct AllPlaces {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, WantedGradient> of_parameters;
};

AllPlaces& all_places() {
  static AllPlaces all;
  return all;
}

/// Whether a backward pass does nothing with a gradient of this parameter but add it to the one that it has.
bool is_only_added(const at::Tensor& parameter) {
  if (c10::GradMode::is_enabled() || !parameter.is_leaf() || !parameter.requires_grad()) return false;
  const auto* const asked = torch::autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || !asked->empty()) return false;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (!node || !node->post_hooks().empty() || !node->pre_hooks().empty() || !node->tensor_pre_hooks().empty() ||
      node->tensor_post_acc_grad_hooks() != nullptr) {
    return false;
  }
  AllPlaces& all = all_places();
  const std::lock_guard lock(all.mutex);
  return !all.of_parameters.contains(parameter.unsafeGetTensorImpl());
}

bool is_plain(const at::Tensor& gradient) {
  return gradient.defined() && gradient.scalar_type() == at::kFloat && gradient.device().is_cpu() &&
         gradient.layout() == at::kStrided && gradient.is_contiguous() && !gradient.requires_grad();
}

}  // namespace

GradientPlaces::~GradientPlaces() {
  AllPlaces& all = all_places();
  const std::lock_guard lock(all.mutex);
  for (const at::Tensor& parameter : parameters_) all.of_parameters.erase(parameter.unsafeGetTensorImpl());
}

void GradientPlaces::add(const at::Tensor& parameter, const at::Tensor& place) {
  AllPlaces& all = all_places();
  const std::lock_guard lock(all.mutex);
  if (!all.of_parameters.try_emplace(parameter.unsafeGetTensorImpl(), WantedGradient{place}).second) return;
  parameters_.push_back(parameter);
}

void GradientPlaces::release() {
  AllPlaces& all = all_places();
  const std::lock_guard lock(all.mutex);
  for (const at::Tensor& parameter : parameters_) {
    all.of_parameters.at(parameter.unsafeGetTensorImpl()).is_taken = false;
  }
}

at::Tensor take_gradient_place(const at::Tensor& parameter) {
  AllPlaces& all = all_places();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of_parameters.find(parameter.unsafeGetTensorImpl());
  if (found == all.of_parameters.end() || found->second.is_taken || parameter.grad().defined()) return {};
  found->second.is_taken = true;
  const at::AutoDispatchBelowADInplaceOrView no_view;  // a view would be copied by who accumulates gradients
  return at::alias(found->second.memory);
}

at::Tensor gradient_to_add_to(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return is_plain(gradient) && gradient.sizes() == parameter.sizes() && is_only_added(parameter) ? gradient
                                                                                                 : at::Tensor();
}

bool begin_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (parameter.grad().defined() || !is_plain(gradient) || gradient.sizes() != parameter.sizes()) return false;
  if (!is_only_added(parameter)) return false;
  parameter.mutable_grad() = gradient;
  return true;
}

}  // namespace trainrun
