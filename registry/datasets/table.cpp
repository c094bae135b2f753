#include "registry/datasets/table.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "registry/datasets/table_columns.h"

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
  constexpr double kMostExact = 9007199254740992.0;  // 2^53: integers up to it are exact as numbers
  if (!word && column.is_integer()) {
    const double missing = std::get<double>(column.missing);
    if (missing != std::floor(missing) || std::abs(missing) > kMostExact) return "missing must be an integer or error";
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

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
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
