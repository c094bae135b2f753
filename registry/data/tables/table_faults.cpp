#include "registry/data/tables/table_faults.h"

#include <algorithm>

#include "registry/data/tables/row_reader.h"
#include "registry/data/tables/table_inference.h"

namespace trainrun {
namespace {

/// What the recipe can say of a column so that its odd texts are missing values: as it says now, where that fits.
std::string odd_cure(const ColumnOptions& now, const ColumnFacts& facts) {
  ColumnOptions options = facts.usual_options();
  if (now.is_integer() && options.type == "number") {
    options.type = "integer";
    options.missing = 0.0;
  }
  const bool says_it = now.type == options.type && !is_error(now);
  return says_it ? "" : recipe_text(options);
}

}  // namespace

void throw_faults(const TableOptions& options, const TableSource& source, const std::vector<Column>& columns,
                  const std::vector<std::string>& faults) {
  std::vector<size_t> places;
  for (const Column& column : columns) places.push_back(column.place);
  if (std::all_of(faults.begin(), faults.end(), [](const std::string& fault) { return fault.empty(); })) return;
  int64_t rows = 0;
  const auto facts = look_at_columns(options, source, places, rows);
  const size_t num_features = columns.size() - options.labels().size();
  std::string lines;
  std::vector<std::string> unreadable;  // whose values are texts that no type can read
  bool are_odd = false;
  for (size_t i = 0; i < faults.size(); ++i) {
    if (faults[i].empty()) continue;
    const Column& column = columns[i];
    const bool is_label = i >= num_features;
    const std::string format = facts[i].number_format();
    const bool is_odd = format.empty() && facts[i].has_odd() && !column.options.is_category();
    const std::string cure = is_odd && !is_label ? odd_cure(column.options, facts[i])
                             : format.empty()    ? column_cure(options, column.options, facts[i], is_label)
                                                 : "";
    lines += (lines.empty() ? "" : "\n") + faults[i];
    if (is_odd) lines += "; " + facts[i].odd_count_text() + " are not " + facts[i].usual_text();
    if (!format.empty()) lines += "; " + source.format_advice(format);
    if (!cure.empty()) lines += "; write columns: {" + yaml_text(column.name) + ": " + cure + "}";
    are_odd = are_odd || (is_odd && !is_label);
    if (is_label && cure.empty() && (is_odd || facts[i].has_missing())) lines += std::string("; ") + kSkipAdvice;
    if (is_odd) continue;
    std::string fault;
    if (format.empty() && cure.empty() && !is_label) facts[i].options(fault);
    if (!fault.empty()) unreadable.push_back(column.name);
  }
  if (const std::string values = are_odd ? na_values_text(facts, options) : ""; !values.empty()) {
    lines += "\n" + options.path + ": write " + values + ", so that these cells are missing values";
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < num_features; ++i) names.push_back(columns[i].name);
  const std::string features = unreadable.empty() ? "" : features_text(names, unreadable);
  if (!features.empty()) lines += "\n" + options.path + ": to leave out what cannot be read write " + features;
  throw DataError(lines);
}

}  // namespace trainrun
