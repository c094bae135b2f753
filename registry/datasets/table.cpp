#include "registry/datasets/table.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_map>

#include "registry/text_view.h"

namespace trainrun {

// --- what a recipe says

void ColumnOptions::describe(Fields<ColumnOptions>& f) {
  f.optional("type", &ColumnOptions::type)
      .one_of({"number", "integer", "category"})
      .doc("numbers go into the field features; integers and categories (as their index) are fields of their own");
  f.optional("categories", &ColumnOptions::categories)
      .doc("in the order of their index; null: those of the training samples, sorted");
  f.optional("allow_unknown", &ColumnOptions::allow_unknown)
      .doc("a category that is not among them gets the index after the last, and is no error");
  f.optional("missing", &ColumnOptions::missing)
      .words({"error", "mean", "median", "most_frequent"})
      .doc(
          "what stands for a missing value: a number, or a category; or mean, median (of numbers) or most_frequent (of "
          "categories) of the training samples; or error");
  f.optional("shape", &ColumnOptions::shape)
      .at_least(1)
      .doc("of lists of numbers, which are a field of their own; []: a single value");
}

int64_t ColumnOptions::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

ColumnOptions TableOptions::column(const std::string& name) const {
  const auto* written = columns.find(name);
  if (!written) return {};
  if (const auto* options = std::get_if<ColumnOptions>(written)) return *options;
  ColumnOptions options;
  options.type = std::get<std::string>(*written);
  return options;
}

namespace {

bool is_statistic(const ColumnOptions& column) {
  const auto* word = std::get_if<std::string>(&column.missing);
  return word && (*word == "mean" || *word == "median" || *word == "most_frequent");
}

bool is_error(const ColumnOptions& column) {
  const auto* word = std::get_if<std::string>(&column.missing);
  return word && *word == "error";
}

/// Why a column's options do not fit together; "" if they do.
std::string fault_of(const ColumnOptions& column) {
  const std::vector<std::string> types = {"number", "integer", "category"};
  if (std::find(types.begin(), types.end(), column.type) == types.end()) {
    return "expected number, integer or category, found '" + column.type + "'" + suggestion(column.type, types);
  }
  const auto* word = std::get_if<std::string>(&column.missing);
  if (column.is_category()) {
    if (!column.shape.empty()) return "a list of categories cannot be read";
    if (word && (*word == "mean" || *word == "median")) return "categories have no " + *word;
    if (column.categories && column.categories->empty()) return "categories names none";
    return "";
  }
  if (column.categories || column.allow_unknown) return "categories are for type category";
  if (!column.shape.empty() && !is_error(column)) return "in a list no value may be missing";
  if (word && *word == "most_frequent") return "most_frequent is for type category";
  if (word && *word != "error" && (column.is_integer() || !is_statistic(column))) {
    return column.is_integer() ? "missing must be an integer or error"
                               : "missing must be a number, mean, median or error";
  }
  if (!word && column.is_integer() &&
      std::get<double>(column.missing) != std::floor(std::get<double>(column.missing))) {
    return "missing must be an integer or error";
  }
  return "";
}

}  // namespace

void TableOptions::check_options(Checker& checker) const {
  if (num_classes && !is_classification()) checker.fail("num_classes", "is for the task classification");
  for (const auto& [name, unused] : columns.entries) {
    const ColumnOptions options = column(name);
    const std::string fault = fault_of(options);
    if (!fault.empty()) checker.fail("columns", "'" + name + "': " + fault);
    if (name == label && (!options.is_category() || !is_classification() || !is_error(options))) {
      checker.fail("columns", "the label '" + name +
                                  "' may only be a category without missing values, in the task classification");
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
  for (const auto& [name, unused] : columns.entries) {
    if (name != label && std::find(features->begin(), features->end(), name) == features->end()) {
      checker.fail("columns", "'" + name + "' is not among the features");
    }
  }
}

namespace {

using nlohmann::json;

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMissingCategory = -1;

std::string shown(std::string_view text) {
  constexpr size_t kMostShown = 40;
  if (text.size() <= kMostShown) return "'" + std::string(text) + "'";
  return "'" + std::string(text.substr(0, kMostShown)) + "…'";
}

/// How a cell looks in a message, and what a category is called.
std::string text_of(const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kMissing:
      return "";
    case Cell::Kind::kText:
      return std::string(trimmed(cell.text));
    case Cell::Kind::kInteger:
      return std::to_string(cell.integer);
    case Cell::Kind::kNumber:
      return json(cell.number).dump();
    case Cell::Kind::kList:
      break;
  }
  return "(a list)";
}

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

/// A column's values of all rows. Only one of the lists is used, as the type says.
struct Column {
  std::string name;
  ColumnOptions options;
  size_t place = 0;  // in a row
  std::vector<float> numbers;
  std::vector<int64_t> integers;                    // of a category: its place in `seen`, or kMissingCategory
  std::vector<std::string> seen;                    // categories in the order of the file
  std::unordered_map<std::string, int64_t> places;  // of `seen`
  // What was learnt, or listed.
  std::vector<std::string> categories;
  std::optional<double> missing_number;
  std::string missing_category;

  bool learns() const { return (options.is_category() && !options.categories) || is_statistic(options); }
};

/// Reads cells into columns. Messages: "FILE:LINE:COLUMN: …".
class CellParser {
 public:
  CellParser(const TableSource& source, const std::vector<std::string>& na_values)
      : source_(source), na_values_(na_values) {}
  void set_row(int64_t row_number) { row_number_ = row_number; }

  [[noreturn]] void fail(const std::string& column, const std::string& fault) const {
    throw DataError(source_.place(row_number_) + ":" + column + ": " + fault);
  }
  bool is_missing(const Cell& cell) const {
    if (cell.kind == Cell::Kind::kMissing) return true;
    return cell.kind == Cell::Kind::kText &&
           std::find(na_values_.begin(), na_values_.end(), trimmed(cell.text)) != na_values_.end();
  }

  float number(const Cell& cell, const std::string& column) const {
    if (is_missing(cell)) fail(column, "the value is missing");
    double value = 0;
    bool out_of_range = false;
    if (cell.kind == Cell::Kind::kInteger) {
      value = static_cast<double>(cell.integer);
    } else if (cell.kind == Cell::Kind::kNumber) {
      value = cell.number;
    } else if (cell.kind == Cell::Kind::kList) {
      fail(column, "is a list; say its shape");
    } else {
      std::string_view text = trimmed(cell.text);
      if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
      const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
      if (text.empty() || result.ptr != text.data() + text.size() || result.ec == std::errc::invalid_argument) {
        fail(column, text.empty() ? "the value is missing" : shown(cell.text) + " is no number");
      }
      out_of_range = result.ec == std::errc::result_out_of_range;
    }
    if (std::isnan(value)) fail(column, shown(text_of(cell)) + " is no number");
    const auto single = static_cast<float>(value);
    if (out_of_range || std::isinf(single)) fail(column, shown(text_of(cell)) + " is too large or too small");
    return single;
  }

  int64_t integer(const Cell& cell, const std::string& column) const {
    if (is_missing(cell)) fail(column, "the value is missing");
    if (cell.kind == Cell::Kind::kInteger) return cell.integer;
    const auto value = cell.kind == Cell::Kind::kList ? std::nullopt : parse_integer(text_of(cell));
    if (!value) fail(column, shown(text_of(cell)) + " is no integer");
    return *value;
  }

  int64_t class_index(const Cell& cell, const std::string& column, std::optional<int64_t> num_classes) const {
    if (is_missing(cell)) fail(column, "the value is missing");
    const auto value = cell.kind == Cell::Kind::kInteger ? std::optional(cell.integer) : parse_integer(text_of(cell));
    if (!value) {
      fail(column, shown(text_of(cell)) +
                       " is no class; classes are integers from 0 (for a number to predict, say task: regression; for "
                       "names, say columns: {" +
                       column + ": category})");
    }
    if (*value < 0 || (num_classes && *value >= *num_classes)) {
      fail(column, "class " + std::to_string(*value) + " is not " +
                       (num_classes ? "from 0 to " + std::to_string(*num_classes - 1) : "0 or more"));
    }
    return *value;
  }

  void add_category(const Cell& cell, Column& column) const {
    if (is_missing(cell)) {
      if (is_error(column.options)) fail(column.name, "the value is missing");
      column.integers.push_back(kMissingCategory);
      return;
    }
    if (cell.kind == Cell::Kind::kList) fail(column.name, "is a list, expected a category");
    const auto [it, is_new] = column.places.try_emplace(text_of(cell), static_cast<int64_t>(column.seen.size()));
    if (is_new) column.seen.push_back(it->first);
    column.integers.push_back(it->second);
  }

  void add_list(const Cell& cell, Column& column) const {
    if (cell.kind != Cell::Kind::kList) fail(column.name, shown(text_of(cell)) + " is no list");
    const size_t count = add_items(cell, column);
    if (static_cast<int64_t>(count) != column.options.numel()) {
      fail(column.name,
           "a list of " + std::to_string(count) + " numbers, expected " + std::to_string(column.options.numel()));
    }
  }

  void add(const Cell& cell, Column& column) const {
    if (column.options.is_category()) {
      add_category(cell, column);
    } else if (!column.options.shape.empty()) {
      add_list(cell, column);
    } else if (column.options.is_integer()) {
      const bool replaced = is_missing(cell) && !is_error(column.options);
      column.integers.push_back(replaced ? static_cast<int64_t>(std::get<double>(column.options.missing))
                                         : integer(cell, column.name));
    } else {
      const bool replaced = is_missing(cell) && !is_error(column.options);
      column.numbers.push_back(replaced ? kMissing : number(cell, column.name));
    }
  }

 private:
  /// The numbers of a list, and of lists in it.
  size_t add_items(const Cell& list, Column& column) const {
    size_t count = 0;
    for (const Cell& item : list.list) {
      if (item.kind == Cell::Kind::kList) {
        count += add_items(item, column);
        continue;
      }
      if (column.options.is_integer()) {
        column.integers.push_back(integer(item, column.name));
      } else {
        column.numbers.push_back(number(item, column.name));
      }
      ++count;
    }
    return count;
  }

  const TableSource& source_;
  const std::vector<std::string>& na_values_;
  int64_t row_number_ = 0;
};

/// NumPy's median.
double median_of(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const auto upper = static_cast<double>(values[half]);
  return values.size() % 2 == 1 ? upper : (static_cast<double>(values[half - 1]) + upper) / 2;
}

/// Learns what `column` needs from the rows `indices`.
void learn_column(Column& column, const at::Tensor& indices) {
  const int64_t* rows = indices.const_data_ptr<int64_t>();
  if (column.options.is_category()) {
    std::map<std::string, int64_t> counts;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const int64_t place = column.integers[static_cast<size_t>(rows[i])];
      if (place != kMissingCategory) ++counts[column.seen[static_cast<size_t>(place)]];
    }
    if (counts.empty()) throw DataError("column '" + column.name + "': no training sample has a value");
    if (is_statistic(column.options)) {
      column.missing_category =
          std::max_element(counts.begin(), counts.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; })  // the first of several
              ->first;
    }
    if (column.options.categories) return;
    if (!is_error(column.options)) counts.try_emplace(column.missing_category, 0);
    for (const auto& [name, unused] : counts) column.categories.push_back(name);
    return;
  }
  std::vector<float> values;
  double sum = 0;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const float value = column.numbers[static_cast<size_t>(rows[i])];
    if (std::isnan(value)) continue;
    values.push_back(value);
    sum += static_cast<double>(value);
  }
  if (values.empty()) throw DataError("column '" + column.name + "': no training sample has a value");
  const bool mean = std::get<std::string>(column.options.missing) == "mean";
  column.missing_number = mean ? sum / static_cast<double>(values.size()) : median_of(std::move(values));
}

class TableDataset : public TensorDataset {
 public:
  TableDataset(TableOptions options, std::unique_ptr<TableSource> source)
      : options_(std::move(options)), source_(std::move(source)) {}

  DatasetInfo info() const override {
    std::vector<std::string> names;
    if (options_.features) {
      names = *options_.features;
    } else {  // the file's beginning alone says which there are
      const std::vector<std::string> all = source_->open()->names();
      for (const size_t place : select_columns(all)) names.push_back(all[place]);
      names.pop_back();  // the label
    }
    DatasetInfo info;
    int64_t num_features = 0;
    for (const std::string& name : names) {
      const ColumnOptions column = options_.column(name);
      if (column.is_feature()) {
        ++num_features;
        continue;
      }
      const bool number = column.type == "number";
      const auto categories = column.categories ? std::optional(num_indices(column)) : std::nullopt;
      info.fields.push_back({name, column.shape, number ? at::kFloat : at::kLong, categories});
    }
    if (num_features > 0)
      info.fields.insert(info.fields.begin(), {"features", {num_features}, at::kFloat, std::nullopt});
    if (options_.is_classification()) {
      info.fields.push_back({"label", {}, at::kLong, num_classes()});
    } else {
      info.fields.push_back({"label", {1}, at::kFloat, std::nullopt});
    }
    info.target = "label";
    return info;
  }

  void open() override {
    const auto reader = source_->open();
    columns_ = make_columns(select_columns(reader->names()), reader->names());
    CellParser parser(*source_, options_.na_values);
    std::vector<Cell> row;
    while (reader->next(row)) {
      rows_.push_back(reader->row_number());
      parser.set_row(rows_.back());
      for (size_t i = 0; i + 1 < columns_.size(); ++i) parser.add(row[columns_[i].place], columns_[i]);
      add_label(row[columns_.back().place], parser);
    }
    if (rows_.empty()) throw DataError(options_.path + ": has no rows below the names of its columns");
    if (std::none_of(columns_.begin(), columns_.end(), [](const Column& column) { return column.learns(); })) {
      make_fields();
    }
  }

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }

  Batch get(const at::Tensor& indices) const override {
    if (!columns_.empty()) throw Error(options_.path + ": its training samples have not been learnt from yet");
    return TensorDataset::get(indices);
  }

  void learn(const at::Tensor& indices) override {
    if (columns_.empty()) return;
    json state = json::object();
    for (Column& column : columns_) {
      if (!column.learns()) continue;
      learn_column(column, indices.contiguous());
      json& own = state[column.name] = json::object();
      if (!column.categories.empty() && !column.options.categories) own["categories"] = column.categories;
      if (column.missing_number) own["missing"] = *column.missing_number;
      if (column.options.is_category() && is_statistic(column.options)) own["missing"] = column.missing_category;
    }
    learnt_ = state;
    make_fields();
  }

  json learnt() const override { return learnt_; }

  void set_learnt(const json& state) override {
    if (columns_.empty()) return;
    try {
      for (Column& column : columns_) {
        if (!column.learns()) continue;
        const json& own = state.at(column.name);
        if (own.contains("categories")) column.categories = own["categories"].get<std::vector<std::string>>();
        if (!own.contains("missing")) continue;
        if (column.options.is_category()) {
          column.missing_category = own["missing"].get<std::string>();
        } else {
          column.missing_number = own["missing"].get<double>();
        }
      }
    } catch (const json::exception&) {
      throw DataError(options_.path + ": what was learnt from the training data is not of these columns");
    }
    learnt_ = state;
    make_fields();
  }

 private:
  static int64_t num_indices(const ColumnOptions& column) {
    return static_cast<int64_t>(column.categories->size()) + (column.allow_unknown ? 1 : 0);
  }
  std::optional<int64_t> num_classes() const {
    const ColumnOptions label = options_.column(options_.label);
    return label.categories ? num_indices(label) : options_.num_classes;
  }

  /// The places of the features, then that of the label.
  std::vector<size_t> select_columns(const std::vector<std::string>& names) const {
    std::vector<size_t> places;
    const size_t label = place_of(options_.label, names);
    if (options_.features) {
      for (const std::string& feature : *options_.features) places.push_back(place_of(feature, names));
    } else {
      for (size_t i = 0; i < names.size(); ++i) {
        if (i != label) places.push_back(i);
      }
    }
    if (places.empty()) throw DataError(options_.path + ": has no column but the label '" + options_.label + "'");
    for (const auto& [name, unused] : options_.columns.entries) place_of(name, names);
    places.push_back(label);
    return places;
  }

  size_t place_of(const std::string& name, const std::vector<std::string>& names) const {
    const auto it = std::find(names.begin(), names.end(), name);
    const std::string where = source_->place(1);
    if (it == names.end()) throw DataError(where + ": there is no column '" + name + "'" + suggestion(name, names));
    if (std::find(it + 1, names.end(), name) != names.end()) {
      throw DataError(where + ": two columns are called '" + name + "'");
    }
    return static_cast<size_t>(it - names.begin());
  }

  std::vector<Column> make_columns(const std::vector<size_t>& places, const std::vector<std::string>& names) const {
    std::vector<Column> columns;
    for (const size_t place : places) {
      Column& column = columns.emplace_back();
      column.name = names[place];
      column.options = options_.column(column.name);
      column.place = place;
      if (column.options.categories) column.categories = *column.options.categories;
      if (is_statistic(column.options) || is_error(column.options)) continue;
      if (const auto* number = std::get_if<double>(&column.options.missing)) {
        column.missing_number = *number;
        column.missing_category = detail::number_text(*number);
      } else {
        column.missing_category = std::get<std::string>(column.options.missing);
      }
    }
    return columns;
  }

  void add_label(const Cell& cell, const CellParser& parser) {
    Column& label = columns_.back();
    if (label.options.is_category()) {
      parser.add_category(cell, label);
    } else if (options_.is_classification()) {
      label.integers.push_back(parser.class_index(cell, label.name, options_.num_classes));
    } else {
      label.numbers.push_back(parser.number(cell, label.name));
    }
  }

  /// Row by row, the index of each category.
  std::vector<int64_t> indices_of(const Column& column) const {
    std::map<std::string, int64_t> index;
    for (size_t i = 0; i < column.categories.size(); ++i) index.emplace(column.categories[i], i);
    const auto index_of = [&](const std::string& name) {
      const auto it = index.find(name);
      if (it != index.end()) return it->second;
      return column.options.allow_unknown ? static_cast<int64_t>(column.categories.size()) : kMissingCategory;
    };
    std::vector<int64_t> of_seen;
    for (const std::string& name : column.seen) of_seen.push_back(index_of(name));
    const int64_t of_missing = index_of(column.missing_category);
    std::vector<int64_t> indices;
    for (size_t row = 0; row < column.integers.size(); ++row) {
      const int64_t place = column.integers[row];
      indices.push_back(place == kMissingCategory ? of_missing : of_seen[static_cast<size_t>(place)]);
      if (indices.back() != kMissingCategory) continue;
      const std::string& name =
          place == kMissingCategory ? column.missing_category : column.seen[static_cast<size_t>(place)];
      throw DataError(source_->place(rows_[row]) + ":" + column.name + ": category " + shown(name) +
                      (column.options.categories ? " is not listed" : " is in no training sample") +
                      suggestion(name, column.categories) + "; allow_unknown: true gives it an index of its own");
    }
    return indices;
  }

  /// From the columns, whose memory is then given back.
  void make_fields() {
    std::vector<const Column*> features;
    for (size_t i = 0; i + 1 < columns_.size(); ++i) {
      if (columns_[i].options.is_feature()) features.push_back(&columns_[i]);
    }
    const int64_t num_features = static_cast<int64_t>(features.size());
    if (num_features > 0) {
      at::Tensor rows = at::empty({size(), num_features}, at::kFloat);
      float* to = rows.mutable_data_ptr<float>();
      for (int64_t row = 0; row < size(); ++row) {
        for (const Column* column : features) {
          const float value = column->numbers[static_cast<size_t>(row)];
          *to++ = std::isnan(value) ? static_cast<float>(*column->missing_number) : value;
        }
      }
      set_field("features", rows);
    }
    for (size_t i = 0; i + 1 < columns_.size(); ++i) {
      const Column& column = columns_[i];
      if (column.options.is_feature()) continue;
      std::vector<int64_t> shape = {size()};
      shape.insert(shape.end(), column.options.shape.begin(), column.options.shape.end());
      const bool number = column.options.type == "number";
      set_field(column.name, number                         ? tensor_of(column.numbers, shape, at::kFloat)
                             : column.options.is_category() ? tensor_of(indices_of(column), shape, at::kLong)
                                                            : tensor_of(column.integers, shape, at::kLong));
    }
    set_label(columns_.back());
    columns_.clear();
  }

  void set_label(const Column& label) {
    if (!options_.is_classification()) return set_field("label", tensor_of(label.numbers, {size(), 1}, at::kFloat));
    if (!label.options.is_category()) return set_field("label", tensor_of(label.integers, {size()}, at::kLong));
    if (options_.num_classes && static_cast<int64_t>(label.categories.size()) > *options_.num_classes) {
      throw DataError(options_.path + ": '" + label.name + "' has " + std::to_string(label.categories.size()) +
                      " categories, num_classes is " + std::to_string(*options_.num_classes));
    }
    set_field("label", tensor_of(indices_of(label), {size()}, at::kLong));
  }

  TableOptions options_;
  std::unique_ptr<TableSource> source_;
  std::vector<Column> columns_;  // the label last; empty once the fields are made
  std::vector<int64_t> rows_;    // numbers of the rows
  json learnt_;
};

}  // namespace

std::unique_ptr<Dataset> make_table(const TableOptions& options, std::unique_ptr<TableSource> source) {
  auto table = std::make_unique<TableDataset>(options, std::move(source));
  if (!options.split) return table;
  return choose_samples(std::move(table), [split = *options.split](int64_t size) { return split.choose(size); });
}

}  // namespace trainrun
