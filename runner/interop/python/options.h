#pragma once

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

#include "registry/language/registry.h"
#include "runner/interop/python/expression.h"

namespace trainrun::python {

/// What a recipe says of a component, as Python's keyword arguments, in its order; defaults, which are PyTorch's, are
/// left to PyTorch. Numbers are as the recipe has them.
template <class Kind>
std::vector<Expression::Argument> written_options(const Component<Kind>& component,
                                                  const std::set<std::string>& without = {}) {
  std::vector<Expression::Argument> options;
  for (const auto& entry : component.written.entries()) {
    if (!component.attributes.contains(entry.key) || without.contains(entry.key)) continue;
    const nlohmann::json& value = component.attributes[entry.key];
    const bool is_number = value.is_number_float() && entry.value.is_scalar();
    options.push_back({entry.key, Expression::code(is_number ? literal(entry.value) : literal(value))});
  }
  return options;
}

/// ", label_smoothing=0.1": the same behind other arguments.
inline std::string further(const std::vector<Expression::Argument>& options) {
  std::string text;
  for (const auto& option : options) text += ", " + option.name + "=" + one_line(option.value);
  return text;
}

}  // namespace trainrun::python
