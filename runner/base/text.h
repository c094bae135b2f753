#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainrun {

// Numbers and tables for people to read.

/// "693,962"
std::string grouped(int64_t number);
/// "0.4103", "98.02": so many decimals; as "3.2e-07" where they would hide the number, "nan" or "inf" for those.
std::string decimal(double number, int decimals = 4);
/// "2.0e-04"
std::string scientific(double number, int decimals = 1);
/// "15.3 s", "3 min 12 s", "2 h 05 min"
std::string duration(double seconds);
/// As `duration`, but shorter than a second "12.3 ms", "45.6 us".
std::string short_duration(double seconds);
/// "640 B", "2.6 MB": powers of 1000
std::string bytes_text(double bytes);
/// "5,812", "42.3", "0.0417": three figures at least, of what happens in a second
std::string rate_text(double rate);
/// "18.4 M", "2.1 G", "640": powers of 1000
std::string amount_text(double amount);
/// Columns that `text` (UTF-8 of single-width characters) takes.
size_t text_width(const std::string& text);

/// `text` in lines of at most `width` columns, broken between words; a longer word has a line of its own.
std::vector<std::string> wrapped(const std::string& text, size_t width);

/// Rows of cells, set in columns.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// A line of dashes.
  void add_rule() { rows_.emplace_back(); }
  /// Each row a line, each after `indent`; columns two spaces apart. With a `width`, words of the last column go on in
  /// further lines where they would pass it.
  std::string to_string(const std::string& indent = "", size_t width = 0) const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace trainrun
