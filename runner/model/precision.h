#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <optional>

#include "registry/kinds/communicator.h"
#include "registry/kinds/layer.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// What `mixed_precision` computes in; nothing for "no".
std::optional<at::ScalarType> autocast_dtype(MixedPrecision mixed_precision);

/// While one lives, on this thread, operations on `device` compute in `dtype` where autocast's lists for that device
/// say so (torch.autocast). Without a dtype it does nothing.
class Autocast {
 public:
  explicit Autocast(std::optional<at::ScalarType> dtype, at::DeviceType device = at::kCPU);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool active_;
  at::DeviceType device_;
  bool was_enabled_ = false;
  at::ScalarType had_dtype_ = at::kFloat;
};

/// Scales the loss so that small gradients do not vanish in float16, as torch.amp.GradScaler does:
///
///   scaler.scale(loss).backward();
///   overflow = scaler.unscale(parameters);   // 1: a gradient has overflowed, and the optimizer skips the step
///   scaler.update(overflow);
///
/// The scale grows after `growth_interval` steps without an overflow and shrinks at each one. It lives on the device
/// where gradients are, so that none of this makes the host wait. Source: Micikevicius et al. 2018, "Mixed precision
/// training".
class GradScaler {
 public:
  explicit GradScaler(const GradScalerSection& options, at::Device device = at::kCPU);

  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the gradients by the scale, in place; a float32 scalar on the device: 0 where all are finite, else 1.
  /// `shards`: where each rank has pieces of the gradients only, those that know the others; every rank calls it.
  at::Tensor unscale(const Tensors& parameters, Communicator* shards = nullptr);
  /// What gradients are multiplied by to divide them by the scale: a float32 scalar.
  at::Tensor inverse() const;
  /// Adapts the scale to what `unscale` found.
  void update(const at::Tensor& overflow);

  /// The scale, read from the device.
  double current() const;
  /// As a checkpoint keeps it.
  nlohmann::json state() const;
  void load_state(const nlohmann::json& state);

 private:
  GradScalerSection options_;
  at::Tensor scale_;           // float32 scalar
  at::Tensor growth_tracker_;  // int32 scalar: steps without an overflow since the scale last changed
};

}  // namespace trainrun
