#pragma once

#include <memory>

#include "registry/data/tables/table_options.h"
#include "registry/kinds/unlabelled_data.h"

namespace trainrun {

/// The rows of `source`'s files, whatever kinds of tables they are, whose columns are found by their names, in any order.
/// Beside their predictions come the ids, or else each row's number, and the columns that the model does not read;
/// a label is left out. `options`: of the training data, with all types known; `own`: how their file is read. Neither is
/// needed any more after this. Throws DataError, also where a column is missing.
std::unique_ptr<UnlabelledData> read_unlabelled(const UnlabelledSource& source, const TableOptions& options,
                                                const TableSource& own);

}  // namespace trainrun
