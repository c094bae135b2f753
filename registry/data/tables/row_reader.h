#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/data/tables/table_options.h"

namespace trainrun {

/// Rows that `broken: skip` left out of a table.
struct RowsLeftOut {
  int64_t count = 0;
  std::string first;  // what is wrong with it, with its place

  void add(const std::string& fault) {
    if (count++ == 0) first = fault;
  }
  /// "t.csv: 2 rows cannot be read and are left out (broken: skip), the first: t.csv:17: …".
  std::string text(const std::string& path) const;
  /// Why a table has no rows.
  std::string nothing_left_text(const std::string& path) const;
};

/// Reads the rows of a table, as `broken` in its recipe says: those that cannot be read are left out and counted; or
/// else they are an error, which says so.
class RowReader {
 public:
  RowReader(std::unique_ptr<TableReader> reader, const TableOptions& options)
      : reader_(std::move(reader)), skips_(options.skips()) {}
  const std::vector<std::string>& names() const { return reader_->names(); }
  void read_only(const std::vector<size_t>& places) { reader_->read_only(places); }
  bool next(std::vector<Cell>& row);
  int64_t row_number() const { return reader_->row_number(); }
  /// Counts a row that was read, but cannot be used: `fault` says why, with its place.
  void leave_out(const std::string& fault) { left_out_.add(fault); }
  const RowsLeftOut& left_out() const { return left_out_; }

 private:
  std::unique_ptr<TableReader> reader_;
  bool skips_;
  RowsLeftOut left_out_;
};

/// What a message about a row says that the recipe could leave out.
inline constexpr const char* kSkipAdvice = "write broken: skip to leave such rows out";

}  // namespace trainrun
