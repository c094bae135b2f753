#pragma once

#include <string>
#include <vector>

#include "registry/graph/graph.h"
#include "registry/kinds/dataset.h"
#include "registry/language/error.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// Those fields of a batch that some layer reads: not the labels.
std::vector<std::string> fields_read(const Graph& graph);

/// Fields of the training data that no layer, loss or metric reads, though nothing else in the recipe says that they are
/// to be left out: a note on them. Of texts nothing is said, whose models choose among their fields.
std::vector<Problem> unread_fields(const Recipe& recipe, const Graph& graph, const DatasetInfo& info);

}  // namespace trainrun
