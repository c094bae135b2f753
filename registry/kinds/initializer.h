#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "registry/language/registry.h"
#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// Overwrites a parameter with its initial values, drawn from LibTorch's default generator: what a function of
/// torch.nn.init does. Throws LayerError where the parameter's shape has no such values.
using Initializer = std::function<void(const at::Tensor& parameter)>;

struct InitializerInputs {};

struct InitializerKind {
  static constexpr const char* kName = "initializer";
  using Inputs = InitializerInputs;
  using Product = Initializer;
  using Common = NoCommon;
};
using InitializerRegistry = Registry<InitializerKind>;
const InitializerRegistry& registry_of(const Catalog& catalog, InitializerKind);

/// Which parameters an initializer is for.
struct InitializerRule {
  std::string match;  // a regular expression, searched in the parameter's name
  Place place;
  std::string path;
  Component<InitializerKind> initializer;
};

/// `init: KaimingNormal` (the weights), or `init: [{match: 'bias$', type: Zeros}, …]`. The first rule that matches a
/// parameter is the one applied.
struct InitializerRules {
  std::vector<InitializerRule> rules;

  /// Applies the rules to `parameters` in their order. Throws RecipeError at the place of a rule that matches none, or
  /// whose initializer does not fit.
  void apply(const NamedTensors& parameters) const;
};

template <>
struct Codec<InitializerRules> {
  static std::optional<InitializerRules> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const InitializerRules&) { return {}; }
  static std::string type_name() { return "initializer, or list of {match: PATTERN, type: NAME, …}"; }
};

}  // namespace trainrun
