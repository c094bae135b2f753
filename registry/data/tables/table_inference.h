#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "registry/data/tables/column_facts.h"

// What the values of a table's columns say of their types.

namespace trainrun {

/// `columns: auto` as it came out.
struct InferredTable {
  struct Entry {
    std::string name;
    ColumnOptions options;
    int64_t missing = 0;
    int64_t distinct = 0;
  };
  std::string path;
  int64_t rows = 0;
  std::vector<Entry> columns;  // the labels last; integer: one label of classes from 0 as they are
  size_t num_labels = 1;
  std::optional<int64_t> num_classes;
  std::vector<std::string> notes;  // on the file itself: a checkpoint does not keep them

  TableOptions::Columns listed() const;
  /// Whether it is a label whose task says how it is read.
  bool leaves_to_task(const Entry& entry) const;
  nlohmann::json to_json() const;
  static InferredTable from_json(const nlohmann::json& json);
};

/// Reads the whole table. `places`: of the columns in a row, the labels' last. Of `no_features` those columns are left
/// out that would be among the numbers of `features`, or that cannot be read. Throws DataError with a line for each other
/// column that cannot be read.
InferredTable infer_table(const TableOptions& options, const TableSource& source, const std::vector<size_t>& places,
                          const std::vector<std::string>& no_features);

/// The categories of the columns `names` of a training file, whose recipe wants them one-hot and does not list them.
/// Throws DataError where a column has too many.
std::map<std::string, std::vector<std::string>> one_hots_in(const TableOptions& options, const TableSource& source,
                                                            const std::vector<std::string>& names);

/// `options` with these categories.
TableOptions with_one_hots(TableOptions options, const std::map<std::string, std::vector<std::string>>& categories);

/// What a recipe says of a column as the file has it, other than it says now; "": the file has to be mended.
std::string column_cure(const TableOptions& options, const ColumnOptions& now, const ColumnFacts& facts, bool is_label);

/// "features: [a, b]": of `names`, those that are not among `faulty`; "" where none is left.
std::string features_text(const std::vector<std::string>& names, const std::vector<std::string>& faulty);
/// As a recipe writes it: "category", "{type: date, format: '%d.%m.%Y', missing: median}".
std::string recipe_text(const ColumnOptions& options);
}  // namespace trainrun
