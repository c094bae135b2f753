#include "runner/model/metric_classes.h"

#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/metric_details.h"
#include "registry/tensors/fault.h"

namespace trainrun {

void name_classes(const std::vector<std::unique_ptr<Metric>>& metrics, const Recipe& recipe, const DatasetInfo& info,
                  const std::function<std::vector<std::string>(const std::string& field)>& names) {
  for (size_t i = 0; i < metrics.size(); ++i) {
    const Names& inputs = recipe.metrics[i].common.inputs;
    if (inputs.size() == 1) continue;
    const std::string& target = inputs.empty() ? info.target : inputs[1];
    if (!info.find(target)) continue;  // another output of the model
    const std::vector<std::string> own = names(target);
    if (!own.empty()) name_classes(*metrics[i], own);
  }
}

std::function<std::vector<std::string>(const std::string& field)> written_classes(const Recipe& recipe) {
  return [&train = recipe.dataset.train](const std::string& field) {
    std::vector<std::string> names;
    at_place(train.place, train.path, "", [&] { names = train.build({})->facts().field(field).class_names; });
    return names;
  };
}

}  // namespace trainrun
