#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "registry/catalog.h"
#include "registry/datasets/csv_reader.h"

namespace trainrun {
namespace {

struct Csv {
  std::string path;
  std::optional<std::vector<std::string>> features;
  std::string label;
  std::string task = "classification";
  std::optional<int64_t> num_classes;
  std::string delimiter = ",";
  bool header = true;

  static void describe(Fields<Csv>& f) {
    f.required("path", &Csv::path).doc("the table, as text or .gz");
    f.required("label", &Csv::label).doc("the column to predict");
    f.optional("features", &Csv::features)
        .not_empty("names no column")
        .doc("the columns to predict from, in this order; null: all but the label");
    f.optional("task", &Csv::task)
        .one_of({"classification", "regression"})
        .doc("the label is a class, an integer from 0, given as [N] int64; or a number, given as [N, 1] float32");
    f.optional("num_classes", &Csv::num_classes).at_least(1).doc("labels are below this; for classification");
    f.optional("delimiter", &Csv::delimiter).doc("the one character between columns: \",\", \";\", \"\\t\"");
    f.optional("header", &Csv::header)
        .doc("the first line names the columns; if false they are named by their number, \"0\" the first");
    f.relation(nlohmann::json::parse(R"({"properties": {"delimiter": {"pattern": "^[^\"\\n\\r]$|\\$\\{"}}})"));
    f.relation(nlohmann::json::parse(
        R"({"if": {"required": ["task"], "properties": {"task": {"const": "regression"}}},
            "then": {"properties": {"num_classes": {"not": {"type": "integer"}}}}})"));
  }

  void check(Checker& checker) const {
    if (delimiter.size() != 1 || delimiter == "\"" || delimiter == "\n" || delimiter == "\r") {
      checker.fail("delimiter", "must be one character, neither a quotation mark nor a line end");
    }
    if (num_classes && !is_classification()) checker.fail("num_classes", "is for the task classification");
    if (!features) return;
    for (size_t i = 0; i < features->size(); ++i) {
      const std::string& name = (*features)[i];
      if (name == label) checker.fail("features", "the label '" + name + "' may not be a feature");
      const auto before = features->begin() + static_cast<int64_t>(i);
      if (std::find(features->begin(), before, name) != before)
        checker.fail("features", "'" + name + "' is there twice");
    }
  }

  bool is_classification() const { return task == "classification"; }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

class CsvDataset : public TensorDataset {
 public:
  explicit CsvDataset(Csv options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    size_t num_features = 0;
    if (options_.features) {
      num_features = options_.features->size();
    } else {  // the first line alone says how many there are
      CsvReader reader(options_.path, options_.delimiter[0]);
      num_features = select_columns(read_names(reader)).size() - 1;
    }
    DatasetInfo info;
    info.fields.push_back({"features", {static_cast<int64_t>(num_features)}, at::kFloat, std::nullopt});
    if (options_.is_classification()) {
      info.fields.push_back({"label", {}, at::kLong, options_.num_classes});
    } else {
      info.fields.push_back({"label", {1}, at::kFloat, std::nullopt});
    }
    info.target = "label";
    return info;
  }

  void open() override {
    CsvReader reader(options_.path, options_.delimiter[0]);
    std::vector<std::string> record;
    const std::vector<std::string> names = read_names(reader, &record);
    const std::vector<size_t> columns = select_columns(names);
    const size_t num_features = columns.size() - 1;
    std::vector<float> features;
    std::vector<float> values;
    std::vector<int64_t> classes;
    bool more = !options_.header || reader.next(record);  // without a header the first record is data
    for (; more; more = reader.next(record)) {
      if (record.size() != names.size()) {
        throw DataError(reader.place() + ": " + std::to_string(record.size()) + " columns, the first line has " +
                        std::to_string(names.size()));
      }
      for (size_t i = 0; i < num_features; ++i) {
        features.push_back(number(record[columns[i]], reader, names[columns[i]]));
      }
      const std::string& label = record[columns[num_features]];
      if (options_.is_classification()) {
        classes.push_back(class_index(label, reader));
      } else {
        values.push_back(number(label, reader, options_.label));
      }
    }
    const auto num_rows = static_cast<int64_t>(features.size() / num_features);
    if (num_rows == 0) throw DataError(options_.path + ": has no rows below the names of its columns");
    set_field("features", tensor_of(features, {num_rows, static_cast<int64_t>(num_features)}, at::kFloat));
    if (options_.is_classification()) {
      set_field("label", tensor_of(classes, {num_rows}, at::kLong));
    } else {
      set_field("label", tensor_of(values, {num_rows, 1}, at::kFloat));
    }
  }

 private:
  /// The columns' names. Without a header they are numbers, and `record` is the first line of data.
  std::vector<std::string> read_names(CsvReader& reader, std::vector<std::string>* record = nullptr) const {
    std::vector<std::string> first;
    if (!reader.next(first)) throw DataError(options_.path + ": is empty");
    if (options_.header) return first;
    std::vector<std::string> names;
    for (size_t i = 0; i < first.size(); ++i) names.push_back(std::to_string(i));
    if (record) *record = std::move(first);
    return names;
  }

  /// The columns of the features, then that of the label.
  std::vector<size_t> select_columns(const std::vector<std::string>& names) const {
    std::vector<size_t> columns;
    const size_t label = column(options_.label, names);
    if (options_.features) {
      for (const std::string& feature : *options_.features) columns.push_back(column(feature, names));
    } else {
      for (size_t i = 0; i < names.size(); ++i) {
        if (i != label) columns.push_back(i);
      }
    }
    if (columns.empty()) throw DataError(options_.path + ": has no column but the label '" + options_.label + "'");
    columns.push_back(label);
    return columns;
  }

  size_t column(const std::string& name, const std::vector<std::string>& names) const {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      throw DataError(options_.path + ":1: there is no column '" + name + "'" + suggestion(name, names));
    }
    if (std::find(it + 1, names.end(), name) != names.end()) {
      throw DataError(options_.path + ":1: two columns are called '" + name + "'");
    }
    return static_cast<size_t>(it - names.begin());
  }

  static std::string quoted(std::string_view text) {
    constexpr size_t kMostShown = 40;
    if (text.size() <= kMostShown) return "'" + std::string(text) + "'";
    return "'" + std::string(text.substr(0, kMostShown)) + "…'";
  }

  static float number(const std::string& field, const CsvReader& reader, const std::string& column) {
    std::string_view text = trimmed(field);
    const auto fail = [&](const std::string& fault) { throw DataError(reader.place() + ":" + column + ": " + fault); };
    if (text.empty()) fail("the value is missing");
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ptr != text.data() + text.size() || result.ec == std::errc::invalid_argument || std::isnan(value)) {
      fail(quoted(field) + " is no number");
    }
    const auto single = static_cast<float>(value);
    if (result.ec == std::errc::result_out_of_range || std::isinf(single))
      fail(quoted(field) + " is too large or too small");
    return single;
  }

  int64_t class_index(const std::string& field, const CsvReader& reader) const {
    const std::string_view text = trimmed(field);
    const std::string where = reader.place() + ":" + options_.label + ": ";
    if (text.empty()) throw DataError(where + "the value is missing");
    const auto value = parse_integer(text);
    if (!value) {
      throw DataError(where + quoted(field) +
                      " is no class; classes are integers from 0 (for a number to predict, say " + "task: regression)");
    }
    if (*value < 0 || (options_.num_classes && *value >= *options_.num_classes)) {
      throw DataError(where + "class " + std::to_string(*value) + " is not " +
                      (options_.num_classes ? "from 0 to " + std::to_string(*options_.num_classes - 1) : "0 or more"));
    }
    return *value;
  }

  template <class T>
  static at::Tensor tensor_of(const std::vector<T>& values, at::IntArrayRef shape, at::ScalarType dtype) {
    at::Tensor tensor = at::empty(shape, dtype);
    std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
    return tensor;
  }

  Csv options_;
};

std::unique_ptr<Dataset> Csv::build(const DatasetInputs&) const { return std::make_unique<CsvDataset>(*this); }

}  // namespace

void add_csv(DatasetRegistry& datasets) {
  datasets.add<Csv>("CSV", "rows of a table: columns of numbers as `features`, one column as `label`");
}

}  // namespace trainrun
