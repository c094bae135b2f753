#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "registry/data/tables/table_options.h"

namespace trainrun {

/// Where the rows of a table were read, and what people call them.
class TablePlaces {
 public:
  /// `ids`: the columns that name rows.
  TablePlaces(const TableSource& source, std::vector<std::string> ids) : source_(source), ids_(std::move(ids)) {}

  void add(int64_t number, std::span<const std::string> id) {
    numbers_.push_back(number);
    values_.insert(values_.end(), id.begin(), id.end());
  }
  /// Whether the row at `index` has this number.
  bool is_next(size_t index, int64_t number) const { return index < numbers_.size() && numbers_[index] == number; }
  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }
  const std::vector<std::string>& ids() const { return ids_; }
  /// "people.csv:17:age (person 'A-17')"
  std::string place(int64_t index, const std::string& column) const;
  /// What is in an id column, row by row; nothing where `column` is none.
  std::vector<std::string> texts(const std::string& column) const;

 private:
  const TableSource& source_;
  std::vector<std::string> ids_;
  std::vector<int64_t> numbers_;
  std::vector<std::string> values_;  // row after row
};

}  // namespace trainrun
