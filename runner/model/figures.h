#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/metric.h"
#include "registry/kinds/monitor.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// "PREFIX/loss/NAME" of each loss, where there are several.
std::vector<std::string> loss_part_names(const Recipe& recipe, const std::string& prefix);

/// What the metrics come to: {"PREFIX/accuracy", …}. Throws ComponentError.
Figures metric_figures(const Recipe& recipe, const std::vector<std::unique_ptr<Metric>>& metrics,
                       const std::string& prefix);

/// A figure that an evaluation gives.
struct EvaluationFigure {
  std::string name;
  std::optional<MonitorMode> better = std::nullopt;  // which way it is better, where its metric says so
};
/// Those of all sets.
std::vector<EvaluationFigure> evaluation_figures(const Recipe& recipe,
                                                 const std::vector<std::unique_ptr<Metric>>& metrics);

}  // namespace trainrun
