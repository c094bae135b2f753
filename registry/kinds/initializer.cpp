#include "registry/kinds/initializer.h"

#include <c10/core/GradMode.h>

#include "registry/kinds/layer_shapes.h"
#include "registry/language/name_regex.h"
#include "registry/language/pattern.h"
#include "registry/tensors/fault.h"

namespace trainrun {
namespace {

/// What `init: NAME` alone is for: everything that PyTorch calls a weight (weight, weight_ih_l0, in_proj_weight).
constexpr const char* kWeights = "weight";

std::optional<InitializerRule> read_rule(const Value& value, Reader& reader) {
  const Value* match = value.is_map() ? value.find("match") : nullptr;
  if (!match) {
    reader.error(
        value.place(),
        "expected {match: PATTERN, type: NAME, …}: a regular expression for parameters' names, and an initializer");
    return std::nullopt;
  }
  const auto pattern = read_pattern(*match, reader);
  if (!pattern) return std::nullopt;
  Value written = value;
  written.erase("match");
  auto initializer = Codec<Component<InitializerKind>>::read(written, reader);
  if (!initializer) return std::nullopt;
  return InitializerRule{*pattern, match->place(), reader.path() + ".match", std::move(*initializer)};
}

}  // namespace

std::optional<InitializerRules> Codec<InitializerRules>::read(const Value& value, Reader& reader) {
  InitializerRules result;
  if (!value.is_list()) {
    auto initializer = Codec<Component<InitializerKind>>::read(value, reader);
    if (!initializer) return std::nullopt;
    result.rules.push_back({kWeights, value.place(), reader.path(), std::move(*initializer)});
    return result;
  }
  for (size_t i = 0; i < value.items().size(); ++i) {
    const auto scope = reader.enter(i);
    if (auto rule = read_rule(value.items()[i], reader)) result.rules.push_back(std::move(*rule));
  }
  return result;
}

nlohmann::json Codec<InitializerRules>::schema(SchemaContext& context) {
  const nlohmann::json rule = {{"$ref", "#/definitions/initializer_rule"}};
  return {{"anyOf", {Codec<Component<InitializerKind>>::schema(context), {{"type", "array"}, {"items", rule}}}}};
}

void InitializerRules::apply(const NamedTensors& parameters) const {
  const c10::AutoGradMode no_gradients(false);
  std::vector<bool> used(rules.size());
  std::vector<Regex> patterns;
  for (const InitializerRule& rule : rules) patterns.push_back(regex_of(rule.match));
  for (const auto& [name, parameter] : parameters) {
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!patterns[i].is_in(name)) continue;
      used[i] = true;
      const Component<InitializerKind>& initializer = rules[i].initializer;
      at_place(initializer.place, initializer.path,
               initializer.type + " does not fit " + name + " " + at::str(parameter.sizes()) + ": ",
               [&, &tensor = parameter] { initializer.build({})(tensor); });
      break;
    }
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (used[i]) continue;
    std::vector<std::string> names;
    for (const auto& [name, parameter] : parameters) names.push_back(name);
    throw RecipeError({{rules[i].place, rules[i].path,
                        "no parameter that an earlier pattern left has a name that matches '" + rules[i].match + "'" +
                            suggestion(rules[i].match, names)}});
  }
}

}  // namespace trainrun
