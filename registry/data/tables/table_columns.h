#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "registry/data/tables/table_options.h"

// The columns of a table, while it is read.

namespace trainrun {

inline constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
inline constexpr int64_t kMissingCategory = -1;

/// A text from the data in a message: in quotation marks, cut off where it is long.
std::string shown(std::string_view text);

/// ColumnNumbers as the file has them: in float32 for as long as that holds every digit of them, else in float64.
class ColumnNumbers {
 public:
  void push_back(double number) {
    if (!is_wide_ && !holds(number)) widen();
    if (is_wide_) {
      wide_.push_back(number);
    } else {
      narrow_.push_back(static_cast<float>(number));
    }
  }
  double operator[](size_t i) const { return is_wide_ ? wide_[i] : static_cast<double>(narrow_[i]); }
  bool is_wide() const { return is_wide_; }
  /// All of them in this shape, float32 or float64.
  at::Tensor tensor(const std::vector<int64_t>& shape) const;

 private:
  static bool holds(double number) {
    return std::isnan(number) || static_cast<double>(static_cast<float>(number)) == number;
  }
  void widen() {
    wide_.assign(narrow_.begin(), narrow_.end());
    narrow_ = {};
    is_wide_ = true;
  }
  std::vector<float> narrow_;
  std::vector<double> wide_;  // in their place
  bool is_wide_ = false;
};

/// A column's values of all rows. Only one of the lists is used, as the type says.
struct Column {
  std::string name;
  ColumnOptions options;
  size_t place = 0;  // in a row
  ColumnNumbers numbers;
  std::vector<int64_t> integers;                    // of a category: its place in `seen`, or kMissingCategory
  std::vector<std::string> seen;                    // categories in the order of the file
  std::unordered_map<std::string, int64_t> places;  // of `seen`
  // What was learnt, or listed.
  std::vector<std::string> categories;
  std::optional<double> missing_number;
  std::string missing_category;

  bool learns() const { return (options.is_category() && !options.categories) || is_statistic(options); }
};

/// Throws DataError where so many rows, of so many columns, would not fit into this machine's memory: they are read whole.
void require_room(int64_t rows, size_t columns, const std::string& path);

/// Which cells hold no value.
class MissingValues {
 public:
  explicit MissingValues(std::optional<std::vector<std::string>> texts) : texts_(std::move(texts)) {}
  /// `of_category`: only what certainly is no name of one.
  bool contains(const Cell& cell, bool of_category) const;

 private:
  std::optional<std::vector<std::string>> texts_;
};

/// How a cell looks in a message, and what a category is called.
std::string text_of(const Cell& cell);
/// true: 1, false: 0, as many programs spell them; nothing: neither.
std::optional<bool> parse_boolean(const Cell& cell);
/// The number in a cell, "inf" and "nan" included, or nothing; an infinity where it is too large for a double.
std::optional<double> parse_cell_number(const Cell& cell);

/// Reads cells into columns. Messages: "FILE:ROW:COLUMN: …".
class CellParser {
 public:
  CellParser(const TableSource& source, std::optional<std::vector<std::string>> na_values)
      : source_(source), missing_(std::move(na_values)) {}
  void set_row(int64_t row_number) { row_number_ = row_number; }

  /// Adds a cell to the column, as its type says.
  void add(const Cell& cell, Column& column) const;
  void add_category(const Cell& cell, Column& column) const;

  double number(const Cell& cell, const std::string& column) const;
  bool boolean(const Cell& cell, const std::string& column) const;
  int64_t class_index(const Cell& cell, const std::string& column, std::optional<int64_t> num_classes) const;

 private:
  [[noreturn]] void fail(const std::string& column, const std::string& fault) const;
  bool is_missing(const Cell& cell, bool of_category = false) const { return missing_.contains(cell, of_category); }
  double feature(const Cell& cell, const Column& column) const;
  int64_t integer(const Cell& cell, const std::string& column) const;
  void add_list(const Cell& cell, Column& column) const;
  size_t add_items(const Cell& list, Column& column) const;

  const TableSource& source_;
  MissingValues missing_;
  int64_t row_number_ = 0;
};

/// Learns what `column`, of the file `path`, needs from the rows `indices` ([n] int64).
void learn_column(Column& column, const at::Tensor& indices, const std::string& path);

}  // namespace trainrun
