#include "registry/data/tables/table_options.h"

#include <algorithm>
#include <cmath>

// What a recipe says of a table.

namespace trainrun {

bool is_statistic(const ColumnOptions& column) {
  const auto* word = std::get_if<std::string>(&column.missing);
  return word && (*word == "mean" || *word == "median" || *word == "most_frequent");
}

bool is_error(const ColumnOptions& column) {
  const auto* word = std::get_if<std::string>(&column.missing);
  return word && *word == "error";
}

void ColumnOptions::describe(Fields<ColumnOptions>& f) {
  f.optional("type", &ColumnOptions::type)
      .one_of({"number", "integer", "boolean", "date", "category"})
      .doc(
          "numbers, booleans (true/false, yes/no, 1/0) and dates (days since 1970) go into the field features; "
          "integers "
          "and categories (as their index) are fields of their own");
  f.optional("categories", &ColumnOptions::categories)
      .doc("in the order of their index; null: those of the training samples, sorted");
  f.optional("allow_unknown", &ColumnOptions::allow_unknown)
      .doc("a category that is not among them gets the index after the last, instead of being an error");
  f.optional("missing", &ColumnOptions::missing)
      .words({"error", "mean", "median", "most_frequent"})
      .doc(
          "replacement for a missing value: a number, or a category; or mean, median (of numbers, booleans and dates) "
          "or "
          "most_frequent (of categories) of the training samples; or error");
  f.optional("one_hot", &ColumnOptions::one_hot)
      .doc("a category goes into features, as a 0 or 1 for each of the categories listed; one not listed is all 0");
  f.optional("format", &ColumnOptions::format)
      .doc("of dates, as strptime has it: \"%d.%m.%Y\"; null: ISO 8601, 2024-05-31 or 2024-05-31T18:30:00Z");
  f.optional("shape", &ColumnOptions::shape)
      .at_least(1)
      .doc("shape of lists of numbers, which become a field of their own; []: a single value");
}

int64_t ColumnOptions::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

const TableOptions::Columns& TableOptions::listed() const {
  static const Columns none;
  return infers() ? none : std::get<Columns>(columns);
}

ColumnOptions TableOptions::column(const std::string& name) const {
  const auto* written = listed().find(name);
  if (!written) return {};
  if (const auto* options = std::get_if<ColumnOptions>(written)) return *options;
  ColumnOptions options;
  options.type = std::get<std::string>(*written);
  return options;
}

namespace {

/// Why a column's options do not fit together; "" if they do.
std::string fault_of(const ColumnOptions& column) {
  const std::vector<std::string> types = {"number", "integer", "boolean", "date", "category"};
  if (std::find(types.begin(), types.end(), column.type) == types.end()) {
    return "expected number, integer, boolean, date or category, found '" + column.type + "'" +
           suggestion(column.type, types);
  }
  if (column.format && !column.is_date()) return "format is only for type date";
  if (column.one_hot && !column.is_category()) return "one_hot is only for type category";
  if (column.one_hot && !column.categories) return "one_hot needs to know the categories; list them";
  if (!column.shape.empty() && (column.is_boolean() || column.is_date())) return "a list is of numbers or integers";
  const auto* word = std::get_if<std::string>(&column.missing);
  if (column.is_category()) {
    if (!column.shape.empty()) return "a list of categories cannot be read";
    if (word && (*word == "mean" || *word == "median")) return "categories have no " + *word;
    if (column.categories && column.categories->empty()) return "categories must name at least one category";
    return "";
  }
  if (column.categories || column.allow_unknown) return "categories are only for columns of type category";
  if (!column.shape.empty() && !is_error(column)) return "in a list no value may be missing";
  if (word && *word == "most_frequent") return "missing: most_frequent is only for columns of type category";
  if (word && *word != "error" && (column.is_integer() || !is_statistic(column))) {
    return column.is_integer() ? "missing must be an integer or error"
                               : "missing must be a number, mean, median or error";
  }
  constexpr double kMostExact = 9007199254740992.0;  // 2^53: integers up to it are exact as numbers
  if (!word && column.is_integer()) {
    const double missing = std::get<double>(column.missing);
    if (missing != std::floor(missing) || std::abs(missing) > kMostExact) return "missing must be an integer or error";
  }
  return "";
}

}  // namespace

void TableOptions::check_options(Checker& checker) const {
  for (const auto& [name, unused] : listed().entries) {
    const ColumnOptions options = column(name);
    const std::string fault = fault_of(options);
    if (!fault.empty()) checker.fail("columns", "'" + name + "': " + fault);
    const bool is_class = (options.is_category() && !options.one_hot) || options.is_boolean();
    if (name == label && (!is_class || !is_classification() || !is_error(options))) {
      checker.fail("columns", "the label '" + name +
                                  "' may only be a category or a boolean without missing values, in the task "
                                  "classification");
    }
    const bool own_field = name != label && !options.is_feature();
    if (own_field && (name == "features" || name == "label")) {
      checker.fail("columns", "a column called '" + name + "' cannot be a field of its own: there is one");
    }
  }
  if (!features) return;
  for (size_t i = 0; i < features->size(); ++i) {
    const std::string& name = (*features)[i];
    if (name == label) checker.fail("features", "the label '" + name + "' may not be a feature");
    const auto before = features->begin() + static_cast<int64_t>(i);
    if (std::find(features->begin(), before, name) != before) {
      checker.fail("features", "'" + name + "' is there twice");
    }
  }
  for (const auto& [name, unused] : listed().entries) {
    if (name != label && std::find(features->begin(), features->end(), name) == features->end()) {
      checker.fail("columns", "'" + name + "' is not among the features");
    }
  }
}

}  // namespace trainrun
