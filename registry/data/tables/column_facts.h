#pragma once

#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "registry/data/tables/dates.h"
#include "registry/data/tables/table_columns.h"

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
  /// Whether nearly all values are numbers, dates or booleans, and a few are none of these: "k.A.".
  bool has_odd() const;
  /// The row of the first of them; "3 of 200 cells"; and "3 of 200 cells, the first 'k.A.'".
  int64_t first_odd() const { return first_odd_; }
  std::string odd_count_text() const;
  std::string odd_text() const;
  /// What the column is best read as once the odd texts stand for missing values.
  ColumnOptions usual_options() const;
  /// "numbers", "dates" or "booleans": what the others are.
  std::string usual_text() const;
  std::string date_counts() const;
  /// Adds the texts that stand for a missing value, the odd ones among them. False where these are too many to list.
  bool add_na_values(std::set<std::string>& texts) const;
  /// Whether most values are numbers: then the others are more likely mistakes than categories.
  bool mostly_numbers() const { return numbers_ * 2 > rows_ - missing_; }
  bool all_integers() const { return integers_ == rows_ - missing_; }
  bool has_missing() const { return missing_ > 0; }
  /// The first row without a value; 0: there is none.
  int64_t first_missing() const { return empty_ > 0 ? first_empty_ : first_missing_; }
  /// Its categories, sorted; with the one that `missing` is, where a value is missing. At most kMostDistinct.
  std::vector<std::string> names(const ColumnOptions& options) const;
  /// How numbers with commas are written, if all that are not numbers are such, but for a few odd ones: "decimal: ','",
  /// "thousands: ','", "decimal: ',' and thousands: '.'"; else "".
  std::string number_format() const;
  int64_t missing() const { return missing_; }
  int64_t empty() const { return empty_; }                                     // missing where it is read as a category
  int64_t distinct() const { return static_cast<int64_t>(distinct_.size()); }  // at most kMostDistinct
  double most() const { return most_; }

  static constexpr size_t kMostDistinct = 10000;

 private:
  bool add_commas(std::string_view text);
  bool add_marks(const Cell& cell);
  void add_text(const Cell& cell, int64_t row);
  int64_t odd() const { return has_few_odd() ? odd_ : 0; }
  bool has_few_odd() const;
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
  int64_t decimal_commas_ = 0;                    // 0,5
  int64_t dotted_ = 0;                            // of these: 1.234,5
  int64_t grouped_ = 0;                           // 1,234 or 1,234.5
  int64_t marked_ = 0;                            // 1.234, where a recipe says decimal: ',' alone
  std::array<int64_t, kNumDateFormats> dates_{};  // by each of date_formats()
  int64_t dated_ = 0;                             // by any of them
  double least_ = std::numeric_limits<double>::infinity();
  double most_ = -std::numeric_limits<double>::infinity();
  std::unordered_set<std::string> distinct_;
  int64_t odd_ = 0;        // texts that are neither numbers, however written, nor dates or booleans
  int64_t first_odd_ = 0;  // the number of a row
  std::string first_odd_text_;
  std::set<std::string> odd_texts_;      // at most one more than kMostOddTexts
  std::set<std::string> missing_texts_;  // of missing values
};

/// The facts of some columns of the file of `options`, in the order of `places`; rows that `broken: skip` leaves out are
/// passed over.
std::vector<ColumnFacts> look_at_columns(const TableOptions& options, const TableSource& source,
                                         const std::vector<size_t>& places, int64_t& rows);

/// What a recipe lists as `na_values`: as na_values_text.
std::vector<std::string> na_values_of(const std::vector<ColumnFacts>& facts, const TableOptions& options);
/// "na_values: ['', 'k.A.']": what stands for a missing value in the columns of `facts`, the odd texts of those in which
/// there are some, and what `options` name already; "" where these are too many to list.
std::string na_values_text(const std::vector<ColumnFacts>& facts, const TableOptions& options);
std::string na_values_text(const std::vector<std::string>& texts);
/// A key or text as YAML's flow style writes it: quoted where it has to be.
std::string yaml_text(const std::string& text);

}  // namespace trainrun
