#pragma once

#include <string>
#include <vector>

#include "registry/data/tables/table_columns.h"

namespace trainrun {

/// Throws DataError where there are `faults`, the first of each of the `columns`, of which the labels are last: all at
/// once, each with what to write into the recipe.
void throw_faults(const TableOptions& options, const TableSource& source, const std::vector<Column>& columns,
                  const std::vector<std::string>& faults);

}  // namespace trainrun
