#include "runner/interop/python/rate_factors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <vector>

#include "runner/interop/python/expression.h"
#include "runner/model/model.h"

namespace trainrun::python {
namespace {

constexpr const char* kGroups = R"(def groups_with_factors(parameters, rules, rate):
    """Groups for an optimizer: by the first rule whose pattern is found in a parameter's name, and by the factor of its rate."""
    groups = {}
    for name, parameter in parameters:
        number = next((i for i, (pattern, _) in enumerate(rules) if re.search(pattern, name)), len(rules))
        options = rules[number][1] if number < len(rules) else {}
        factor = next(factor for own, factor in RATE_FACTORS.items() if f"{name}.".startswith(f"{own}."))
        scaled = options | {"lr": options.get("lr", rate) * factor}
        groups.setdefault((number, factor), {"params": [], **scaled})["params"].append(parameter)
    return list(groups.values())
)";

using Factors = std::vector<std::pair<std::string, double>>;

/// The factor of each parameter, in the model's order.
Factors factors_of(const Recipe& recipe) {
  const auto model = plan_model(recipe);
  const std::map<std::string, double> scales = model->lr_scales(recipe);
  Factors factors;
  for (const auto& [name, parameter] : model->parameters()) {
    const auto scale = scales.find(name);
    factors.emplace_back(name, scale == scales.end() ? 1 : scale->second);
  }
  return factors;
}

bool begins_with(const std::string& name, const std::string& beginning) {
  return (name + ".").starts_with(beginning + ".");
}

/// The same by layers: the shortest beginnings of names all of whose parameters have one factor.
Factors by_layers(const Factors& factors) {
  Factors layers;
  for (const auto& [name, factor] : factors) {
    const auto is_known = [&name = name](const auto& layer) { return begins_with(name, layer.first); };
    if (std::ranges::any_of(layers, is_known)) continue;
    std::string own = name;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const std::string beginning = name.substr(0, dot);
      const bool is_one = std::ranges::all_of(factors, [&beginning, &factor = factor](const auto& other) {
        return other.second == factor || !begins_with(other.first, beginning);
      });
      if (!is_one) continue;
      own = beginning;
      break;
    }
    layers.emplace_back(own, factor);
  }
  return layers;
}

}  // namespace

bool has_rate_factors(const Recipe& recipe) {
  return std::ranges::any_of(factors_of(recipe), [](const auto& one) { return one.second != 1; });
}

std::string groups_with_rate_factors(const Recipe& recipe, const std::string& rules, SourceFile& file) {
  const auto& optimizer = recipe.optimizer;
  const nlohmann::json rate = optimizer.attributes.value("lr", nlohmann::json());
  if (optimizer.type == "LBFGS" || optimizer.type == "ChainedOptimizer" || !rate.is_number()) {
    file.refuse(optimizer.place, optimizer.path,
                "layer_decay and layers with an lr_scale are written for one optimizer with a learning rate for each "
                "group; leave them out, or use one such as AdamW");
    return "net.parameters()";
  }
  std::string text;
  for (const auto& [layer, factor] : by_layers(factors_of(recipe))) {
    text += "    " + quoted(layer) + ": " + nlohmann::json(factor).dump() + ",\n";
  }
  file.import("import re");
  file.constant("RATE_FACTORS", "{\n" + text + "}");
  file.define("groups_with_factors", kGroups);
  return "groups_with_factors(net.named_parameters(), " + rules + ", " + rate.dump() + ")";
}

}  // namespace trainrun::python
