#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "registry/data/text_file.h"

namespace trainrun {

/// A column by its number, from 0, or from the end if negative; or by its name.
using WordColumn = std::variant<int64_t, std::string>;

/// How a file of sentences lies on the disk whose words have a label each.
struct WordTableOptions {
  std::string path;
  std::optional<WordColumn> words;   // null: the first column, or "tokens"
  std::optional<WordColumn> labels;  // null: the last column, or "ner_tags"
  bool has_labels = true;            // false: they are not read
  TextEncoding encoding = TextEncoding::kUtf8;
  std::function<void()> count = {};  // called after each sentence
};

/// The sentences of such a file, read whole, one after the other.
struct WordTable {
  std::vector<std::string> words;
  std::vector<int32_t> labels;           // of each word, its place in `label_names`; empty where they are not read
  std::vector<std::string> label_names;  // as the file writes them, each once
  std::vector<int64_t> begins = {0};     // of each sentence among the words, and the end
  std::vector<int64_t> lines;            // of each sentence, from 1: the line of its first word, or its row
  std::vector<int64_t> word_lines;       // of each word, where each has a line of its own
  bool has_numbers = false;              // labels are integers: places in a list of names that the file lacks
  std::vector<std::string> notes;        // what was left out

  int64_t size() const { return static_cast<int64_t>(lines.size()); }
};

/// Whether the file's name says that each word has a line of its own: all but .jsonl, .json, .parquet, .arrow and
/// .feather.
bool has_word_lines(const std::string& path);

/// Reads a file, plain or gzip, by its ending: .jsonl, an object in each line, and .parquet, .arrow, .feather, with a list
/// of words and one of labels in each row; any other as CoNLL has it: a word a line, columns between tabulators or, in a
/// line without one, blanks; an empty line, or one of -DOCSTART-, ends a sentence. A .conllu file may have comments, and
/// words of several tokens and empty ones, which are left out. Throws DataError naming file, line and column.
WordTable read_word_table(const WordTableOptions& options);

}  // namespace trainrun
