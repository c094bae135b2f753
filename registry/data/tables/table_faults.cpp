#include "registry/data/tables/table_faults.h"

#include "registry/data/tables/table_inference.h"

namespace trainrun {

void throw_faults(const TableOptions& options, const TableSource& source, const std::vector<Column>& columns,
                  const std::vector<std::string>& faults) {
  std::vector<size_t> faulty;  // of columns
  std::vector<size_t> places;
  for (size_t i = 0; i < faults.size(); ++i) {
    if (faults[i].empty()) continue;
    faulty.push_back(i);
    places.push_back(columns[i].place);
  }
  if (faulty.empty()) return;
  int64_t rows = 0;
  const auto facts = look_at_columns(source, places, MissingValues(options.na_values), options.path, rows);
  const size_t num_features = columns.size() - options.labels().size();
  std::string lines;
  std::vector<std::string> unreadable;  // whose values are texts that no type can read
  for (size_t i = 0; i < faulty.size(); ++i) {
    const Column& column = columns[faulty[i]];
    const bool is_label = faulty[i] >= num_features;
    const std::string format = facts[i].number_format();
    const std::string cure = format.empty() ? column_cure(options, column.options, facts[i], is_label) : "";
    lines += (lines.empty() ? "" : "\n") + faults[faulty[i]];
    if (!format.empty()) lines += "; " + source.format_advice(format);
    if (!cure.empty()) lines += "; write columns: {" + yaml_text(column.name) + ": " + cure + "}";
    std::string fault;
    if (format.empty() && cure.empty() && !is_label) facts[i].options(fault);
    if (!fault.empty()) unreadable.push_back(column.name);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < num_features; ++i) names.push_back(columns[i].name);
  const std::string features = unreadable.empty() ? "" : features_text(names, unreadable);
  if (!features.empty()) lines += "\n" + options.path + ": to leave out what cannot be read write " + features;
  throw DataError(lines);
}

}  // namespace trainrun
