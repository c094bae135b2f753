#include "runner/model/figures.h"

#include "registry/component_error.h"
#include "registry/figure_name.h"

namespace trainrun {

std::vector<std::string> loss_part_names(const Recipe& recipe, const std::string& prefix) {
  if (recipe.loss.size() < 2) return {};
  std::vector<std::string> names = figure_names(recipe.loss);
  for (std::string& name : names)
    name = prefix + "/loss/" + name;  // NOLINT(performance-inefficient-string-concatenation)
  return names;
}

Figures metric_figures(const Recipe& recipe, const std::vector<std::unique_ptr<Metric>>& metrics,
                       const std::string& prefix) {
  const std::vector<std::string> names = figure_names(recipe.metrics);
  Figures figures;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const Figures computed = as_component(name_of(recipe.metrics[i]), {}, [&] { return metrics[i]->compute(); });
    for (const auto& [part, value] : computed) {
      std::string name = prefix + "/" + names[i];
      if (!part.empty()) name += "/" + part;
      figures.emplace_back(std::move(name), value);
    }
  }
  return figures;
}

std::vector<std::string> evaluation_names(const Recipe& recipe, const std::vector<std::unique_ptr<Metric>>& metrics) {
  std::vector<std::string> names;
  const std::vector<EvalSets::One> none;
  for (const EvalSets::One& set : recipe.dataset.eval ? recipe.dataset.eval->sets : none) {
    names.push_back(set.prefix() + "/loss");
    const std::vector<std::string> parts = loss_part_names(recipe, set.prefix());
    names.insert(names.end(), parts.begin(), parts.end());
    for (const auto& [name, value] : metric_figures(recipe, metrics, set.prefix())) names.push_back(name);
  }
  return names;
}

}  // namespace trainrun
