#pragma once

#include "registry/kinds/layer.h"

namespace trainrun {

/// What a loss's `build` returns.
struct Loss {
  std::shared_ptr<torch::nn::Module> state;  // parameters and buffers of the loss itself; null if there are none
  /// [output, target] (or what `inputs:` names) -> a scalar.
  std::function<at::Tensor(const Tensors&)> forward;
};

struct LossCommon {
  std::optional<std::string> name;  // of its figure, if there are several losses
  Names inputs;
  double loss_weight = 1;  // not `weight`: that is PyTorch's, one for each class
  static void describe(Fields<LossCommon>& f);
  void check(Checker& checker) const;
};

struct LossKind {
  static constexpr const char* kName = "loss";
  using Inputs = LayerInputs;
  using Product = Loss;
  using Common = LossCommon;
};
using LossRegistry = Registry<LossKind>;
const LossRegistry& registry_of(const Catalog& catalog, LossKind);

/// `loss: CrossEntropyLoss`, or a list of losses, whose sum, each times its loss_weight, is minimized.
struct LossList : std::vector<Component<LossKind>> {
  using std::vector<Component<LossKind>>::vector;
};

template <>
struct Codec<LossList> {
  static std::optional<LossList> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const LossList& losses) { return Codec<std::vector<Component<LossKind>>>::write(losses); }
  static std::string type_name() { return "loss or list of losses"; }
};

}  // namespace trainrun
