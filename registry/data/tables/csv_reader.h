#pragma once

#include <string>
#include <vector>

#include "registry/data/text_file.h"

namespace trainrun {

/// The character that seems to be between the columns, where `header` holds `wanted` only as a part of a name; 0: none.
char seeming_delimiter(const std::vector<std::string>& header, const std::string& wanted);
/// The one of `candidates` that divides the first records of a file into equally many columns, at least two; where none
/// divides all of them so, the one that divides most of them as the first. Throws DataError where none does, or several
/// do.
char find_delimiter(const std::string& path, std::optional<TextEncoding> encoding, const std::string& candidates);
/// As messages and recipes write it: "','".
std::string delimiter_text(char delimiter);

/// A record in which another character seems to be between the columns.
class NotDelimited : public DataError {
 public:
  using DataError::DataError;
};

/// Reads a table of delimited text, plain or gzip, record by record: RFC 4180, with LF or CRLF ends, an optional
/// byte-order mark, and any one character as delimiter. Blank lines are skipped. Throws DataError as "FILE:LINE:
/// …", also where a record is longer than kLongestLine or has more than kMostColumns.
class CsvReader {
 public:
  /// `is_chosen`: a recipe says the delimiter, and so could say another.
  CsvReader(std::string path, char delimiter, std::optional<TextEncoding> encoding = std::nullopt,
            bool is_chosen = true);
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
  std::string quote_advice(int character) const;

  TextFile file_;
  char delimiter_;
  bool is_chosen_;
  std::vector<char> buffer_;
  size_t position_ = 0;
  size_t filled_ = 0;
  uint64_t read_ = 0;          // bytes, those in buffer_ included
  uint64_t record_start_ = 0;  // where the record that is read began
  int64_t line_ = 1;
  int64_t record_line_ = 1;
};

}  // namespace trainrun
