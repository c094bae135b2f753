#pragma once

#include <memory>

#include "registry/data/tables/table_options.h"

namespace trainrun {

/// The table as a data set: columns of numbers, booleans, dates (days since 1970) and one-hot categories together as
/// `features` [N, F] float32; each other category ([N] int64), integer and list a field of its own, under its column's
/// name; the label as `label`. Categories that are not listed are those of the training samples, sorted.
std::unique_ptr<Dataset> make_table(const TableOptions& options, std::unique_ptr<TableSource> source,
                                    const DatasetInputs& inputs);

}  // namespace trainrun
