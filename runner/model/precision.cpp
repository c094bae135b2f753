#include "runner/model/precision.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "runner/model/gradients.h"

namespace trainrun {

namespace autocast = at::autocast;

std::optional<at::ScalarType> autocast_dtype(MixedPrecision mixed_precision) {
  if (mixed_precision == MixedPrecision::kBf16) return at::kBFloat16;
  if (mixed_precision == MixedPrecision::kFp16) return at::kHalf;
  return std::nullopt;
}

Autocast::Autocast(std::optional<at::ScalarType> dtype, at::DeviceType device)
    : active_(dtype.has_value()), device_(device) {
  if (!active_) return;
  was_enabled_ = autocast::is_autocast_enabled(device_);
  had_dtype_ = autocast::get_autocast_dtype(device_);
  autocast::set_autocast_enabled(device_, true);
  autocast::set_autocast_dtype(device_, *dtype);
  autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();  // weights change between steps
  autocast::set_autocast_enabled(device_, was_enabled_);
  autocast::set_autocast_dtype(device_, had_dtype_);
}

GradScaler::GradScaler(const GradScalerSection& options, at::Device device)
    : options_(options),
      scale_(at::full({}, static_cast<float>(options.init_scale), at::TensorOptions(device).dtype(at::kFloat))),
      growth_tracker_(at::zeros({}, at::TensorOptions(device).dtype(at::kInt))) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

at::Tensor GradScaler::unscale(const Tensors& parameters, Communicator* shards) {
  const c10::AutoGradMode no_gradients(false);
  const Tensors gradients = gradients_of(parameters);
  at::Tensor overflow = at::zeros_like(scale_);
  if (gradients.empty() && !shards) return overflow;
  if (!gradients.empty()) at::_amp_foreach_non_finite_check_and_unscale_(gradients, overflow, inverse());
  if (!shards) return overflow;
  shards->sum(overflow);
  return overflow.clamp_max(1);  // kernels that skip look for a 1
}

at::Tensor GradScaler::inverse() const { return scale_.to(at::kDouble).reciprocal().to(at::kFloat); }

void GradScaler::update(const at::Tensor& overflow) {
  at::_amp_update_scale_(scale_, growth_tracker_, overflow, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
}

double GradScaler::current() const { return static_cast<double>(scale_.item<float>()); }

nlohmann::json GradScaler::state() const {
  return {{"scale", scale_.item<float>()}, {"growth_tracker", static_cast<int64_t>(growth_tracker_.item<int>())}};
}

void GradScaler::load_state(const nlohmann::json& state) {
  scale_.fill_(state.at("scale").get<float>());
  growth_tracker_.fill_(state.at("growth_tracker").get<int64_t>());
}

}  // namespace trainrun
