#pragma once

#include "registry/layer.h"

namespace trainrun {

/// What a loss builder gives.
struct Loss {
  std::shared_ptr<torch::nn::Module> state;  // parameters and buffers of the loss itself; null if there are none
  /// [output, target] (or what `inputs:` names) -> a scalar.
  std::function<at::Tensor(const Tensors&)> forward;
};

struct LossCommon {
  Names inputs;
  static void describe(Fields<LossCommon>& f);
};

struct LossKind {
  static constexpr const char* kName = "loss";
  using Inputs = LayerInputs;
  using Product = Loss;
  using Common = LossCommon;
};
using LossRegistry = Registry<LossKind>;
const LossRegistry& registry_of(const Catalog& catalog, LossKind);

}  // namespace trainrun
