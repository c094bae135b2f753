#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "registry/data/tables/table_reader.h"
#include "registry/data/views.h"
#include "registry/language/named.h"

namespace trainrun {

struct InferredTable;

/// What a column holds: `age: number`, `city: {type: category, missing: unknown}`.
struct ColumnOptions {
  std::string type = "number";
  std::optional<std::vector<std::string>> categories;
  bool allow_unknown = false;
  std::variant<double, std::string> missing = std::string("error");
  bool one_hot = false;
  std::optional<std::string> format;
  std::vector<int64_t> shape;
  std::optional<int64_t> max_length;
  double padding = 0;

  static void describe(Fields<ColumnOptions>& f);
  bool is_category() const { return type == "category"; }
  bool is_integer() const { return type == "integer"; }
  bool is_boolean() const { return type == "boolean"; }
  bool is_date() const { return type == "date"; }
  /// Whether it goes, with others, into the field `features`.
  bool is_feature() const { return is_category() ? one_hot : !is_integer() && !is_list(); }
  bool is_list() const { return !shape.empty() || is_sequence(); }
  /// Whether its lists may be of different lengths.
  bool is_sequence() const { return max_length.has_value(); }
  /// How many numbers of `features` it is: 1, or one for each category.
  int64_t width() const { return is_category() ? static_cast<int64_t>(categories->size()) : 1; }
  int64_t numel() const;
};

/// Whether a statistic of the training samples stands for a missing value; whether one is an error.
bool is_statistic(const ColumnOptions& column);
bool is_error(const ColumnOptions& column);

/// What the recipe says of any table. Files of tables derive from it and say how they are read.
struct TableOptions {
  using Columns = Named<std::variant<std::string, ColumnOptions>>;

  std::string path;
  std::variant<std::string, std::vector<std::string>> label;
  std::optional<std::variant<std::string, std::vector<std::string>>> id;
  std::optional<std::vector<std::string>> features;
  std::variant<std::string, Columns> columns = Columns();
  std::optional<std::vector<std::string>> na_values;
  std::string task = "classification";
  std::optional<int64_t> num_classes;
  std::string broken = "error";
  std::optional<SplitOptions> split;

  template <class T>
  static void describe_into(Fields<T>& f, const char* path_doc = "path of the file");
  /// The same without `split`.
  template <class T>
  static void describe_whole_into(Fields<T>& f, const char* path_doc);
  void check_options(Checker& checker) const;
  /// The columns to predict, of which there may be several; those that name rows.
  std::vector<std::string> labels() const;
  std::vector<std::string> ids() const;
  bool is_label(const std::string& column) const;
  bool has_several_labels() const { return std::holds_alternative<std::vector<std::string>>(label); }
  /// Whether the label is one class.
  bool is_classification() const { return task == "classification" && !has_several_labels(); }
  /// Whether rows that cannot be read are left out.
  bool skips() const { return broken == "skip"; }
  /// Whether the types follow from the file: `columns: auto`.
  bool infers() const { return std::holds_alternative<std::string>(columns); }
  /// The columns with `one_hot` whose categories the recipe leaves to the training file.
  std::vector<std::string> open_one_hots() const;
  /// Those that the recipe lists.
  const Columns& listed() const;
  ColumnOptions column(const std::string& name) const;

  /// What was inferred, kept by all copies, so that the file is looked through once.
  struct Memory {
    std::mutex mutex;
    std::shared_ptr<const InferredTable> table;
    std::optional<std::vector<std::string>> features;  // of the training data, where the recipe leaves them open
    std::optional<std::map<std::string, std::vector<std::string>>> one_hots;  // likewise: categories of columns
    nlohmann::json source;  // what the training data's file told (TableSource::told); null: nothing, or not known
  };
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
};

enum class TableKind { kCsv, kJsonl, kArrow, kSqlite, kOfHub };  // kOfHub: no file's, but a data set's of the hub

/// How a table's file is read.
class TableSource {
 public:
  virtual ~TableSource() = default;
  virtual std::unique_ptr<TableReader> open() const = 0;
  /// "FILE:ROW" of a row by its number.
  virtual std::string place(int64_t row_number) const = 0;
  virtual TableKind kind() const = 0;
  /// Another file of this kind, read in the same way, whose rows may have more columns, or other ones.
  virtual std::unique_ptr<TableSource> of_file(const std::string& path) const = 0;
  /// What to do about a column `wanted` that is not among `names`, if the file shows it: "; write delimiter: ';'", or "".
  virtual std::string column_advice(const std::string& wanted, const std::vector<std::string>& names) const {
    return static_cast<void>(wanted), static_cast<void>(names), "";
  }
  /// What to do about numbers that are written as `format` says, "decimal: ','".
  virtual std::string format_advice(const std::string& format) const {
    return static_cast<void>(format),
           "numbers are read with a point and no other mark, 1234.5; convert these in the file";
  }
  /// What the file alone told of how it is to be read, for other files of this kind; null: nothing.
  virtual nlohmann::json told() const { return nullptr; }
  /// Has the file be read as the training data told, where it can be.
  virtual void know(const nlohmann::json& told) { static_cast<void>(told); }
  /// The names of the classes that a column holds the numbers of, if the file tells. May open it.
  virtual std::vector<std::string> class_names(const std::string& column) const {
    return static_cast<void>(column), std::vector<std::string>();
  }
  /// What a user should know of how the file is read: a sentence each.
  virtual std::vector<std::string> notes() const { return {}; }
};

template <class T>
void TableOptions::describe_into(Fields<T>& f, const char* path_doc) {
  describe_whole_into(f, path_doc);
  f.optional("split", &TableOptions::split).doc("take a part of the rows, drawn by a seed; null: all");
}

template <class T>
void TableOptions::describe_whole_into(Fields<T>& f, const char* path_doc) {
  f.required("path", &TableOptions::path).doc(path_doc);
  f.required("label", &TableOptions::label)
      .not_empty("expected at least one column")
      .doc(
          "the column to predict; or a list of columns of numbers or booleans, which are given together as [N, K] "
          "float32");
  f.optional("id", &TableOptions::id)
      .not_empty("expected at least one column")
      .doc(
          "a column, or several, that identifies a row to people; it is not a feature; messages and predictions name "
          "rows by it");
  f.optional("features", &TableOptions::features)
      .not_empty("expected at least one column")
      .doc(
          "the columns to predict from, in this order; null: all but the label and id, and, in "
          "Windows, the columns of group and time that `columns` and `known` do not name");
  f.optional("columns", &TableOptions::columns)
      .one_of({"auto"})
      .doc(
          "what columns hold: number, integer, boolean, date or category, or a mapping with type, categories, missing, "
          "…; the others hold numbers. Or auto: what the training file's values say, which `explain` shows");
  f.optional("na_values", &TableOptions::na_values)
      .doc(
          "strings that mean a missing value; null: the empty string, and in columns that are not categories NA, N/A, "
          "nan, null, None and ?");
  f.optional("task", &TableOptions::task)
      .one_of({"classification", "regression"})
      .doc(
          "the label is a class, given as [N] int64: an integer from 0, or a category; or a number, given as [N, 1] "
          "float32. If it is omitted, and neither num_classes nor columns make the label a class, it is regression if "
          "every loss that reads the label learns numbers (MSELoss, L1Loss, …)");
  f.optional("num_classes", &TableOptions::num_classes).at_least(1).doc("labels are below this; for classification");
  f.optional("broken", &TableOptions::broken)
      .one_of({"error", "skip"})
      .doc(
          "what to do with a row that cannot be read, because it has too many or too few columns, no label, or a value "
          "that its column cannot hold: error: stop and name it; skip: leave it out and count it");
  f.rule({.when = {the("task").is("regression")},
          .all = {the("num_classes").is_missing()},
          .at = "num_classes",
          .message = "is for the task classification"});
}

}  // namespace trainrun
