#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "registry/data/tables/table_columns.h"

// What the values of a table's columns say of their types.

namespace trainrun {

/// What is seen of one column, cell by cell.
class ColumnFacts {
 public:
  /// `row`: its number, for messages.
  void add(const Cell& cell, const MissingValues& missing, int64_t row);

  /// What such a column is best read as; `fault` says why it cannot be read at all, or is "".
  ColumnOptions options(std::string& fault) const;
  /// The same for the label of a classification, where it may be classes that are numbered from 0 already: the type is
  /// then integer. For regression a number; for one of several labels a number or boolean.
  ColumnOptions label_options(const TableOptions& table, std::string& fault) const;
  /// Whether most values are numbers: then the others are more likely mistakes than categories.
  bool mostly_numbers() const { return numbers_ * 2 > rows_ - missing_; }
  bool all_integers() const { return integers_ == rows_ - missing_; }
  bool has_missing() const { return missing_ > 0; }
  /// The first row without a value; 0: there is none.
  int64_t first_missing() const { return empty_ > 0 ? first_empty_ : first_missing_; }
  /// How numbers with commas are written, if all that are not numbers are such: "decimal: ','", "thousands: ','",
  /// "decimal: ',' and thousands: '.'"; else "".
  std::string number_format() const;
  int64_t missing() const { return missing_; }
  int64_t distinct() const { return static_cast<int64_t>(distinct_.size()); }  // at most kMostDistinct
  double most() const { return most_; }

  static constexpr size_t kMostDistinct = 10000;

 private:
  void add_commas(std::string_view text);
  void add_marks(const Cell& cell);
  std::vector<std::string> sorted_categories() const;
  bool has_few_values() const;

  int64_t rows_ = 0;
  int64_t missing_ = 0;  // as a number, boolean or date
  int64_t empty_ = 0;    // as a category
  int64_t numbers_ = 0;
  int64_t integers_ = 0;
  int64_t booleans_ = 0;
  int64_t lists_ = 0;
  int64_t list_size_ = 0;  // of the longest list
  bool are_of_one_size_ = true;
  int64_t first_missing_ = 0;  // the number of a row
  int64_t first_empty_ = 0;
  int64_t decimal_commas_ = 0;      // 0,5
  int64_t dotted_ = 0;              // of these: 1.234,5
  int64_t grouped_ = 0;             // 1,234 or 1,234.5
  int64_t marked_ = 0;              // 1.234, where a recipe says decimal: ',' alone
  std::array<int64_t, 5> dates_{};  // by each of date_formats()
  double least_ = std::numeric_limits<double>::infinity();
  double most_ = -std::numeric_limits<double>::infinity();
  std::unordered_set<std::string> distinct_;
};

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

  TableOptions::Columns listed() const;
  /// Whether it is a label whose task says how it is read.
  bool leaves_to_task(const Entry& entry) const;
  nlohmann::json to_json() const;
  static InferredTable from_json(const nlohmann::json& json);
};

/// Reads the whole table. `places`: of the columns in a row, the labels' last. Throws DataError with a line for each
/// column that cannot be read.
InferredTable infer_table(const TableOptions& options, const TableSource& source, const std::vector<size_t>& places);
/// The facts of some columns of the file `path`, in the order of `places`.
std::vector<ColumnFacts> look_at_columns(const TableSource& source, const std::vector<size_t>& places,
                                         const MissingValues& missing, const std::string& path, int64_t& rows);

/// What a recipe says of a column as the file has it, other than it says now; "": the file has to be mended.
std::string column_cure(const TableOptions& options, const ColumnOptions& now, const ColumnFacts& facts, bool is_label);

/// "features: [a, b]": of `names`, those that are not among `faulty`; "" where none is left.
std::string features_text(const std::vector<std::string>& names, const std::vector<std::string>& faulty);
/// As a recipe writes it: "category", "{type: date, format: '%d.%m.%Y', missing: median}".
std::string recipe_text(const ColumnOptions& options);
/// A key or text as YAML's flow style writes it: quoted where it has to be.
std::string yaml_text(const std::string& text);

}  // namespace trainrun
