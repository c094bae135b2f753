#include "runner/model/figures.h"

#include "registry/kinds/metric_details.h"
#include "registry/language/figure_name.h"
#include "registry/tensors/component_error.h"

namespace trainrun {
namespace {

/// "eval/f1", or of one of its figures "eval/f1/3".
std::string figure_of_metric(const std::string& prefix, const std::string& metric, const std::string& part) {
  return prefix + "/" + metric + (part.empty() ? "" : "/" + part);
}

}  // namespace

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
      figures.emplace_back(figure_of_metric(prefix, names[i], part), value);
    }
  }
  return figures;
}

std::vector<EvaluationFigure> evaluation_figures(const Recipe& recipe,
                                                 const std::vector<std::unique_ptr<Metric>>& metrics) {
  std::vector<EvaluationFigure> all;
  const std::vector<std::string> metric_names = figure_names(recipe.metrics);
  const std::vector<EvalSets::One> none;
  for (const EvalSets::One& set : recipe.dataset.eval ? recipe.dataset.eval->sets : none) {
    const std::string prefix = set.prefix();
    all.push_back({prefix + "/loss", MonitorMode::kMin});
    for (const std::string& part : loss_part_names(recipe, prefix)) all.push_back({part, MonitorMode::kMin});
    for (size_t i = 0; i < metrics.size(); ++i) {
      const Figures own = as_component(name_of(recipe.metrics[i]), {}, [&] { return metrics[i]->compute(); });
      for (const auto& [part, value] : own) {
        all.push_back({figure_of_metric(prefix, metric_names[i], part), better_of(*metrics[i], part)});
      }
    }
  }
  return all;
}

}  // namespace trainrun
