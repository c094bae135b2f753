#pragma once

#include <optional>
#include <string>

#include "runner/init/draft.h"
#include "runner/init/table_sight.h"

namespace trainrun {

/// The column that a table's model is to predict, and how.
struct TableTarget {
  std::string name;
  std::string reason;  // why this one: "called so by --target"
  bool is_class = true;
  std::string doubt;                      // about the task, or ""
  int64_t num_classes = 0;                // of classes
  int64_t without = 0;                    // rows that have no label
  std::map<std::string, int64_t> counts;  // of classes
};

/// Chooses it: what --target says, else the only column of which `unlabelled`, a table without labels, has none, else one
/// with a usual name, else the last. Throws Error, which lists the columns, where none can be told.
TableTarget choose_target(const TableSight& table, const TableSight* unlabelled, const InitOptions& options);

/// Whether the column only says which row it is: a name, such as `id`, or values that are different in every row.
bool is_id_like(const ColumnSight& column, int64_t rows);

}  // namespace trainrun
