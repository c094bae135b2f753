#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {

/// How a file writes numbers.
struct NumberFormat {
  char decimal = '.';
  char thousands = '\0';  // between thousands; 0: nothing is

  /// "1234.5" of "1.234,5"; what is not such a number comes out as something that is not a number either.
  std::string standard(std::string_view text) const;
};

/// One value of a row, as its file has it.
struct Cell {
  enum class Kind { kMissing, kText, kInteger, kNumber, kList, kObject };
  Kind kind = Kind::kMissing;
  bool is_boolean = false;  // an integer that the file writes as true or false
  std::string text;
  const NumberFormat* format = nullptr;  // of a number in `text`; null: the usual one
  int64_t integer = 0;
  double number = 0;
  std::vector<Cell> list;         // also the values of an object
  std::vector<std::string> keys;  // of these; tables have no objects, but conversations do
};

/// A row cannot be read, but the next one may be.
class RowError : public DataError {
 public:
  using DataError::DataError;
};

/// Reads a table row by row. Everything wrong is a DataError that names file and place.
class TableReader {
 public:
  virtual ~TableReader() = default;
  /// The columns' names.
  virtual const std::vector<std::string>& names() const = 0;
  /// Says, before the first row, which columns will be looked at, by their places: the others' cells need not be read.
  /// Throws DataError where one of them holds what cannot be read.
  virtual void read_only(const std::vector<size_t>& places) { static_cast<void>(places); }
  /// Reads the next row, a cell a column; false at the end.
  virtual bool next(std::vector<Cell>& row) = 0;
  /// The number by which people find the last row: its line, or its place among the rows, from 1.
  virtual int64_t row_number() const = 0;
};

}  // namespace trainrun
