#include "registry/tensors/gradient_places.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/alias.h>

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

}  // namespace trainrun
