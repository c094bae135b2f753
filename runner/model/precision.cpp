#include "runner/model/precision.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

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

GradScaler::GradScaler(const GradScalerSection& options)
    : options_(options), scale_(static_cast<float>(options.init_scale)) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

bool GradScaler::unscale(const Tensors& parameters, Communicator* shards) {
  const c10::AutoGradMode no_gradients(false);
  const Tensors gradients = gradients_of(parameters);
  if (gradients.empty() && !shards) return true;
  const at::TensorOptions options(parameters.empty() ? at::Device(at::kCPU) : parameters[0].device());
  at::Tensor found_inf = at::zeros({1}, options);
  const auto inverse = static_cast<float>(1 / static_cast<double>(scale_));
  if (!gradients.empty()) {
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, at::full({1}, inverse, options));
  }
  if (shards) shards->sum(found_inf);
  found_inf_ = found_inf.item<float>() != 0;
  return !found_inf_;
}

void GradScaler::update() {
  if (found_inf_) {
    scale_ = static_cast<float>(static_cast<double>(scale_) * options_.backoff_factor);
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    const auto grown = static_cast<float>(static_cast<double>(scale_) * options_.growth_factor);
    if (std::isfinite(grown)) scale_ = grown;
    growth_tracker_ = 0;
  }
  found_inf_ = false;
}

nlohmann::json GradScaler::state() const { return {{"scale", scale_}, {"growth_tracker", growth_tracker_}}; }

void GradScaler::load_state(const nlohmann::json& state) {
  scale_ = state.at("scale").get<float>();
  growth_tracker_ = state.at("growth_tracker").get<int64_t>();
}

}  // namespace trainrun
