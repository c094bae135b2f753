#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/metric.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// Tells the recipe's metrics what the classes of their targets are called. `info`: the fields of the batches; `names`: of
/// the classes that a field holds, by their numbers; empty: it has none.
void name_classes(const std::vector<std::unique_ptr<Metric>>& metrics, const Recipe& recipe, const DatasetInfo& info,
                  const std::function<std::vector<std::string>(const std::string& field)>& names);

/// The names that the recipe lists for the classes of its training data.
std::function<std::vector<std::string>(const std::string& field)> written_classes(const Recipe& recipe);

}  // namespace trainrun
