#pragma once

#include <string>
#include <vector>

#include "runner/init/table_sight.h"
#include "runner/init/table_target.h"

namespace trainrun {

/// What becomes of a table's columns other than the one to predict.
struct ColumnPlan {
  struct Group {
    std::string what;                // "numbers"
    std::string becomes;             // "a number each; a missing one is the median"
    std::vector<std::string> names;  // with what is worth saying of each: "horsepower (6 missing)"
  };
  std::vector<Group> groups;
  std::vector<std::string> features;
  std::vector<std::string> ids;        // columns that tell rows apart
  std::vector<std::string> left;       // columns that cannot be used, each with why
  std::vector<std::string> texts;      // of these, those that hold texts
  std::vector<std::string> na_values;  // what the recipe has to list of them; empty: nothing
  std::vector<std::string> doubts;
  std::vector<std::string> odd;  // the like, about columns that `na_values` makes numbers, dates or booleans
  std::string time;              // the column by which the rows are in the order of time; "": there is none
  bool lists_features = false;   // whether the recipe has to list them
};
ColumnPlan plan_columns(const TableSight& table, const TableTarget& target);

}  // namespace trainrun
