#include "registry/data/tables/table_options.h"

#include <algorithm>
#include <cmath>

#include "registry/data/ragged_rows.h"

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
      .doc(
          "in the order of their index; null: those of the training samples, sorted; with one_hot, those of the whole "
          "training file");
  f.optional("allow_unknown", &ColumnOptions::allow_unknown)
      .doc("a category that is not among them gets the index after the last, instead of being an error");
  f.optional("missing", &ColumnOptions::missing)
      .words({"error", "mean", "median", "most_frequent"})
      .doc(
          "replacement for a missing value: a number, or a category; or mean, median (of numbers, booleans and dates) "
          "or "
          "most_frequent (of categories) of the training samples; or error");
  f.optional("one_hot", &ColumnOptions::one_hot)
      .doc("a category goes into features, as a 0 or 1 for each of the categories; an unknown one is all 0");
  f.optional("format", &ColumnOptions::format)
      .doc("the format of dates, as for strptime: \"%d.%m.%Y\"; null: ISO 8601, 2024-05-31 or 2024-05-31T18:30:00Z");
  f.optional("shape", &ColumnOptions::shape)
      .at_least(1)
      .doc("shape of lists of numbers, which become a field of their own; []: a single value");
  f.optional("max_length", &ColumnOptions::max_length)
      .at_least(1)
      .doc(
          "lists may have different lengths up to this; each of their items is of `shape`. A batch has them in the "
          "length of its longest, [N, L, …], and beside them the field NAME_mask, [N, L]: 1 where a list has an item");
  f.optional("padding", &ColumnOptions::padding).doc("what fills up the lists that are shorter than the longest");
}

int64_t ColumnOptions::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

namespace {

using Strings = std::vector<std::string>;

Strings list_of(const std::variant<std::string, Strings>& names) {
  const auto* one = std::get_if<std::string>(&names);
  return one ? Strings{*one} : std::get<Strings>(names);
}

bool contains(const Strings& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Strings TableOptions::labels() const { return list_of(label); }

Strings TableOptions::ids() const { return id ? list_of(*id) : Strings(); }

bool TableOptions::is_label(const std::string& column) const { return contains(labels(), column); }

std::vector<std::string> TableOptions::open_one_hots() const {
  std::vector<std::string> names;
  for (const auto& [name, unused] : listed().entries) {
    const ColumnOptions options = column(name);
    if (options.one_hot && !options.categories) names.push_back(name);
  }
  return names;
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
  if (column.is_list() && (column.is_boolean() || column.is_date())) return "a list is of numbers or integers";
  if (column.padding != 0 && !column.is_sequence()) return "padding is only for lists with a max_length";
  if (column.padding != std::floor(column.padding) && column.is_integer()) return "padding must be an integer";
  const auto* word = std::get_if<std::string>(&column.missing);
  if (column.is_category()) {
    if (column.is_list()) return "a list of categories cannot be read";
    if (word && (*word == "mean" || *word == "median")) return "categories have no " + *word;
    if (column.categories && column.categories->empty()) return "categories must name at least one category";
    return "";
  }
  if (column.categories || column.allow_unknown) return "categories are only for columns of type category";
  if (column.is_list() && !is_error(column)) return "in a list no value may be missing";
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

/// Why a column that is a label cannot be what its options say; "" if it can.
std::string label_fault(const ColumnOptions& column, const TableOptions& table) {
  if (table.has_several_labels()) {
    const bool fits = !column.is_list() && is_error(column) && (column.type == "number" || column.is_boolean());
    return fits ? "" : "may only be a number or a boolean without missing values: it is one of several labels";
  }
  const bool is_class = (column.is_category() && !column.one_hot) || column.is_boolean();
  if (is_class && table.is_classification() && is_error(column)) return "";
  return "may only be a category or a boolean without missing values, in the task classification";
}

/// The first name that is there twice, or "".
std::string twice(const Strings& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) return *name;
  }
  return "";
}

void check_names(const TableOptions& table, Checker& checker) {
  const Strings labels = table.labels();
  const Strings features = table.features.value_or(Strings());
  if (const std::string name = twice(labels); !name.empty()) checker.fail("label", "'" + name + "' occurs twice");
  if (const std::string name = twice(table.ids()); !name.empty()) checker.fail("id", "'" + name + "' occurs twice");
  if (table.has_several_labels() && table.num_classes) {
    checker.fail("num_classes", "is for one label; a list of columns holds numbers");
  }
  for (const std::string& name : table.ids()) {
    if (contains(labels, name)) checker.fail("id", "the label '" + name + "' may not be an id");
    if (contains(features, name)) checker.fail("id", "'" + name + "' is among the features; an id is none");
  }
  for (const std::string& name : labels) {
    if (contains(features, name)) checker.fail("features", "the label '" + name + "' may not be a feature");
  }
  if (const std::string name = twice(features); !name.empty()) checker.fail("features", "'" + name + "' occurs twice");
}

/// Of columns that become fields of their own.
void check_field_names(const TableOptions& table, Checker& checker) {
  Strings fields;
  for (const auto& [name, unused] : table.listed().entries) {
    const ColumnOptions options = table.column(name);
    if (table.is_label(name) || options.is_feature()) continue;
    if (name == "features" || name == "label") {
      checker.fail("columns", "a column called '" + name + "' cannot be a field of its own: there is one");
    }
    fields.push_back(name);
    if (options.is_sequence()) fields.push_back(mask_name(name));
  }
  if (const std::string name = twice(fields); !name.empty()) {
    checker.fail("columns", "'" + name + "' cannot be a field of its own: this is the name of a list's mask");
  }
}

}  // namespace

void TableOptions::check_options(Checker& checker) const {
  check_names(*this, checker);
  check_field_names(*this, checker);
  for (const auto& [name, unused] : listed().entries) {
    const ColumnOptions options = column(name);
    const std::string fault = fault_of(options);
    if (!fault.empty()) checker.fail("columns", "'" + name + "': " + fault);
    const std::string of_label = is_label(name) ? label_fault(options, *this) : "";
    if (!of_label.empty()) checker.fail("columns", "the label '" + name + "' " + of_label);
    if (contains(ids(), name)) checker.fail("columns", "'" + name + "' is the id, which is kept as the file has it");
    if (features && !is_label(name) && !contains(*features, name)) {
      checker.fail("columns", "'" + name + "' is not among the features");
    }
  }
}

}  // namespace trainrun
