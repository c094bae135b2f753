#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// What a loss or a metric is called among a run's figures: `name`, or its type in snake case: "TopKAccuracy" ->
/// "top_k_accuracy", "MSE" -> "mse", "MeanIoU" -> "mean_iou".
std::string figure_name(const std::string& type, const std::optional<std::string>& name);

/// What a figure is called now that recipes and checkpoints may know by an older name: "eval/mean_io_u/3" is
/// "eval/mean_iou/3". Others keep theirs.
std::string present_figure_name(const std::string& name);

/// Names of all the losses, or metrics, of a recipe. Those that are called the same are numbered: "mse", "mse_2".
template <class Components>
std::vector<std::string> figure_names(const Components& components) {
  std::vector<std::string> names;
  for (const auto& component : components) {
    const std::string plain = figure_name(component.type, component.common.name);
    std::string name = plain;
    for (int number = 2; std::find(names.begin(), names.end(), name) != names.end(); ++number) {
      name = plain + "_" + std::to_string(number);
    }
    names.push_back(name);
  }
  return names;
}

}  // namespace trainrun
