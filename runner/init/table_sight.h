#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "registry/data/tables/column_facts.h"
#include "registry/data/tables/table_options.h"
#include "registry/data/text_file.h"

namespace trainrun {

/// What is seen of one column of a table that no recipe says anything of.
struct ColumnSight {
  std::string name;
  ColumnFacts facts;
  std::map<std::string, int64_t> counts;                         // rows of each value, while these are few
  std::map<std::string, int64_t> words_counts;                   // of NA and the like, values of categories alone
  bool counts_all = true;                                        // whether `counts` has all values
  int64_t texts = 0, words = 0;                                  // cells of text, and the words in them
  int64_t amounts = 0;                                           // of these: "$1,806.60", "12 kg"
  std::string first_amount;                                      // of them
  bool counts_up = true;                                         // whole numbers, each one more than the one before
  bool is_image = true;                                          // the names of files of images,
  std::vector<std::string> images;                               // these, row by row
  std::array<bool, 5> ascends = {true, true, true, true, true};  // as dates by each of date_formats()
  double least = 0, most = 0;                                    // of the numbers

  double mean_words() const { return texts > 0 ? static_cast<double>(words) / static_cast<double>(texts) : 0; }
  /// Whether its rows are in the order of the dates that `options` reads.
  bool is_in_order(const ColumnOptions& options) const;
};

/// A table of whatever kind, looked through once.
struct TableSight {
  std::string path;
  std::string type;                      // of the data set: "CSV", "JSONL", …
  std::vector<std::string> settings;     // of the recipe that tell how the file is read: "delimiter: ';'"
  std::vector<std::string> told;         // the same, for people
  std::optional<TextEncoding> encoding;  // which a recipe has to name
  std::vector<std::string> doubts;       // about how the file is read
  int64_t rows = 0;
  int64_t copies = 0;  // rows that are like one before them
  std::vector<ColumnSight> columns;
  std::vector<std::string> unread;  // columns of types that are not read, such as BLOBs or objects of Parquet
  /// Of a .tsv file that can only be read with quotation marks as text, as data sets of texts do: why not otherwise.
  std::string quotation_fault;

  const ColumnSight* find(const std::string& name) const;
  std::vector<std::string> names() const;
  std::vector<ColumnFacts> facts() const;
};

/// Whether a file of this name is a table.
bool is_table_name(const std::string& path);
/// Looks the whole table through. `encoding`: of a file of text, as the command names it. Throws DataError where it cannot
/// be read.
TableSight look_at_table(const std::string& path, const std::optional<TextEncoding>& encoding);
/// The same table, read by a recipe that lists `na_values`.
TableSight look_again(const TableSight& table, const std::vector<std::string>& na_values);

}  // namespace trainrun
