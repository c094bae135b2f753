#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "registry/data/text_file.h"

namespace trainrun {

/// How a file of texts and labels is laid out.
struct TextTableOptions {
  std::string path;
  std::vector<std::string> text_columns;  // one or two
  std::optional<std::string> label;       // null: there are no labels
  std::vector<std::string> names;         // of the columns of lines with tabulators, where no first line names them
  bool leaves_out_short_rows = false;     // of such lines those that lack a column asked for; longer ones are read
  std::optional<TextEncoding> encoding = {};
  bool is_chosen = true;                  // a recipe says the columns, by text_columns and label
  std::function<void()> count = {};       // called after each row
  bool can_leave_out_unlabelled = false;  // whether the recipe has a word for it: `broken`
  bool leaves_out_unlabelled = false;     // rows without a label, whose labels are "" here, which EncodedTexts counts
};

/// The rows of such a file, read whole.
struct TextRows {
  std::vector<std::string> first;
  std::vector<std::string> second;  // empty where there is one text column
  std::vector<std::string> labels;  // as the file writes them
  std::vector<int64_t> lines;       // where each row begins, from 1
  int64_t left_out = 0;             // rows that were too short
};

/// Looks at the first rows alone, where there is such a file, as reading it does. Throws DataError, as that would.
void look_at_text_table(const TextTableOptions& options);

/// Reads a file, plain or gzip, by its ending: .csv as RFC 4180 has it, with quoted fields; .jsonl, an object in each
/// line; .parquet, .arrow and .feather, whose rows count as lines; any other (.tsv, .txt) as lines of fields with
/// tabulators between them, in which quotation marks are text, and of which the first, as in .csv, names the columns. A
/// byte-order mark and CRLF are taken off. Throws DataError naming file and line.
TextRows read_text_table(const TextTableOptions& options);

}  // namespace trainrun
