#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
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
  size_t size() const { return is_wide_ ? wide_.size() : narrow_.size(); }
  /// Leaves the first `count` of them, if there are so many.
  void cut(size_t count) {
    if (is_wide_) wide_.resize(std::min(wide_.size(), count));
    if (!is_wide_) narrow_.resize(std::min(narrow_.size(), count));
  }
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
  std::array<std::set<std::string>, 2> words;       // of a label that is a boolean: how the file writes no, and yes
  std::vector<int64_t> begins = {0};                // of a sequence: where each row's begins, in items, and the end
  // What was learnt, or listed.
  std::vector<std::string> categories;
  std::optional<double> missing_number;
  std::string missing_category;

  bool learns() const { return (options.is_category() && !options.categories) || is_statistic(options); }
  /// Leaves the values of the first `rows` rows.
  void cut(int64_t rows);
};

/// A column called `name`, at `place` of a row, with what the recipe says of it. Nothing is learnt yet.
Column make_column(const std::string& name, size_t place, const ColumnOptions& options);
/// What `column` has learnt from the training samples, as a checkpoint keeps it.
nlohmann::json learnt_of(const Column& column);
/// Has `column` be read as such a state says. Throws nlohmann's exception where it is not of this column.
void set_learnt_of(Column& column, const nlohmann::json& state);
/// What is wrong with a category `name` that is none of the column's: "category 'Oslo' is in no training sample; …".
std::string category_fault(const Column& column, const std::string& name);
/// "": they are numbers, or different words.
std::string boolean_name(const std::set<std::string>& words);

/// Throws DataError where so many rows, of so many columns, would not fit into this machine's memory: they are read whole.
void require_room(int64_t rows, size_t columns, const std::string& path);

/// Which cells hold no value.
class MissingValues {
 public:
  explicit MissingValues(std::optional<std::vector<std::string>> texts) : texts_(std::move(texts)) {}
  /// `of_category`: only what certainly is no name of one.
  bool contains(const Cell& cell, bool of_category) const;
  /// What is missing unless a recipe says otherwise, the empty text aside, in columns that are not categories.
  static const std::vector<std::string>& words();

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
  CellParser(const TableSource& source, std::optional<std::vector<std::string>> na_values,
             std::vector<std::string> id_names = {})
      : source_(source), missing_(std::move(na_values)), id_names_(std::move(id_names)) {}
  /// `id`: what the row is called in the columns `id_names`; it must live as long as cells of the row are read.
  void set_row(int64_t row_number, std::span<const std::string> id = {}) {
    row_number_ = row_number;
    id_ = id;
  }

  /// Adds a cell to the column, as its type says.
  void add(const Cell& cell, Column& column) const;
  void add_category(const Cell& cell, Column& column) const;

  double number(const Cell& cell, const std::string& column) const;
  bool boolean(const Cell& cell, const std::string& column) const;
  /// Adds a class that is a boolean.
  void add_boolean_class(const Cell& cell, Column& column) const;
  int64_t class_index(const Cell& cell, const std::string& column, std::optional<int64_t> num_classes) const;

 private:
  [[noreturn]] void fail(const std::string& column, const std::string& fault) const;
  bool is_missing(const Cell& cell, bool of_category = false) const { return missing_.contains(cell, of_category); }
  double feature(const Cell& cell, const Column& column) const;
  int64_t integer(const Cell& cell, const std::string& column) const;
  void add_list(const Cell& cell, Column& column) const;
  void require_items(const Cell& list, const Column& column) const;
  size_t add_items(const Cell& list, Column& column) const;

  const TableSource& source_;
  MissingValues missing_;
  std::vector<std::string> id_names_;
  int64_t row_number_ = 0;
  std::span<const std::string> id_;
};

/// " (order 'A-17')": what a row is called in the columns `names`; "" where there are no values.
std::string id_text(const std::vector<std::string>& names, std::span<const std::string> values);

/// Learns what `column`, of the file `path`, needs from the rows `indices` ([n] int64).
void learn_column(Column& column, const at::Tensor& indices, const std::string& path);

}  // namespace trainrun
