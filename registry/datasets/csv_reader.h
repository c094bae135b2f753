#pragma once

#include <string>
#include <vector>

#include "registry/datasets/data_file.h"

namespace trainrun {

/// Reads a table of delimited text, plain or gzip, record by record: RFC 4180, with LF or CRLF ends, an optional
/// byte-order mark, and any one character as delimiter. Blank lines are passed over. Throws DataError as "FILE:LINE:
/// …".
class CsvReader {
 public:
  CsvReader(std::string path, char delimiter);
  /// Reads the next record; false at the end.
  bool next(std::vector<std::string>& fields);
  /// The line, counted from 1, on which the last record began.
  int64_t line() const { return record_line_; }
  /// "FILE:LINE"
  std::string place() const;

 private:
  static constexpr int kEnd = -1;
  int get();
  int peek();
  void read_quoted(std::string& field);
  void end_line(int character);

  DataFile file_;
  char delimiter_;
  std::vector<char> buffer_;
  size_t position_ = 0;
  size_t filled_ = 0;
  int64_t line_ = 1;
  int64_t record_line_ = 1;
};

}  // namespace trainrun
