#include "registry/text_data/word_table.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>

#include "registry/data/data_file.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/text_corpus.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

constexpr const char* kUsualWords = "tokens";
constexpr const char* kUsualLabels = "ner_tags";

/// Puts sentences together.
class SentenceMaker {
 public:
  explicit SentenceMaker(const WordTableOptions& options) : options_(options) {}

  void add_word(std::string word) { table_.words.push_back(std::move(word)); }
  void add_label(const std::string& label) {
    const auto [at, is_new] = places_.try_emplace(label, static_cast<int32_t>(table_.label_names.size()));
    if (is_new) table_.label_names.push_back(label);
    table_.labels.push_back(at->second);
  }
  /// Of one that has words; `line`: where it begins.
  void end_sentence(int64_t line) {
    table_.begins.push_back(static_cast<int64_t>(table_.words.size()));
    table_.lines.push_back(line);
    if (options_.count) options_.count();
  }
  bool has_open_sentence() const { return static_cast<int64_t>(table_.words.size()) > table_.begins.back(); }
  WordTable& table() { return table_; }
  const WordTable& table() const { return table_; }
  WordTable finish() {
    if (table_.lines.empty()) throw DataError(options_.path + ": has no sentences");
    return std::move(table_);
  }

 private:
  const WordTableOptions& options_;
  WordTable table_;
  std::unordered_map<std::string, int32_t> places_;
};

/// A word a line.
class ColumnReader {
 public:
  explicit ColumnReader(const WordTableOptions& options)
      : options_(options), is_conllu_(has_extension(options.path, ".conllu")), maker_(options) {}

  WordTable read() {
    TextLines lines(options_.path, options_.encoding);
    std::string line;
    while (lines.next(line)) take(line, lines.number());
    if (maker_.has_open_sentence()) maker_.end_sentence(first_line_);
    WordTable& table = maker_.table();
    if (num_documents_ > 0) {
      table.notes.push_back(counted(num_documents_, "line of -DOCSTART- is", "lines of -DOCSTART- are") + " left out");
    }
    if (num_passed_ > 0) {
      table.notes.push_back(counted(num_passed_, "line of several tokens, or of an empty one, is",
                                    "lines of several tokens, or of empty ones, are") +
                            " left out");
    }
    if (!options_.has_labels && !is_conllu_ && num_columns_ > 1) {
      table.notes.push_back("each line is one word, in column " + std::to_string(word_column_) + " of " +
                            std::to_string(num_columns_) + "; the other columns are not read" +
                            (has_tabs_ ? "" : ": of a sentence, write each word on a line of its own"));
    }
    return maker_.finish();
  }

 private:
  void take(std::string_view line, int64_t number) {
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    const bool is_document = line.starts_with("-DOCSTART-");
    num_documents_ += is_document ? 1 : 0;
    if (is_document || line.find_first_not_of(" \t") == std::string_view::npos) {
      if (maker_.has_open_sentence()) maker_.end_sentence(first_line_);
      return;
    }
    if (is_conllu_ && line.starts_with('#')) return;
    split(line);
    if (is_conllu_ && cells_[0].find_first_of("-.") != std::string_view::npos) {
      ++num_passed_;
      return;
    }
    require_columns(number);
    if (!maker_.has_open_sentence()) first_line_ = number;
    maker_.add_word(std::string(cells_[word_column_]));
    maker_.table().word_lines.push_back(number);
    if (!options_.has_labels) return;
    const std::string_view label = cells_[label_column_];
    if (label.empty()) fail(number, "the label is missing");
    maker_.add_label(std::string(label));
  }
  /// At tabulators, between which a word may have blanks; without any, at blanks.
  void split(std::string_view line) {
    cells_.clear();
    if (line.find('\t') != std::string_view::npos) {
      has_tabs_ = true;
      for (size_t begin = 0; begin <= line.size();) {
        const size_t end = std::min(line.find('\t', begin), line.size());
        cells_.push_back(line.substr(begin, end - begin));
        begin = end + 1;
      }
      return;
    }
    for (size_t begin = line.find_first_not_of(' '); begin < line.size();) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      cells_.push_back(line.substr(begin, end - begin));
      begin = line.find_first_not_of(' ', end);
    }
  }
  void require_columns(int64_t number) {
    if (num_columns_ == 0) {
      num_columns_ = cells_.size();
      of_line_ = number;
      word_column_ = place_of(options_.words, is_conllu_ ? 1 : 0, "words", number);
      if (options_.has_labels) label_column_ = place_of(options_.labels, is_conllu_ ? 3 : -1, "labels", number);
      if (options_.has_labels && word_column_ == label_column_) {
        fail(number, "has one column; expected a word and its label, separated by tabs or spaces");
      }
    }
    if (cells_.size() == num_columns_) return;
    fail(number, "has " + counted(static_cast<int64_t>(cells_.size()), "column", "columns") + ", line " +
                     std::to_string(of_line_) + " has " + std::to_string(num_columns_) + "; expected a word a line" +
                     (options_.has_labels ? " with its label" : "") + ", and an empty line after each sentence");
  }
  size_t place_of(const std::optional<WordColumn>& column, int64_t usual, const char* parameter, int64_t number) const {
    if (column && std::holds_alternative<std::string>(*column)) {
      fail(number, std::string("its columns have numbers, not names; write ") + parameter +
                       ": 0 for the first, -1 for the last");
    }
    const int64_t asked = column ? std::get<int64_t>(*column) : usual;
    const auto count = static_cast<int64_t>(num_columns_);
    const int64_t place = asked < 0 ? asked + count : asked;
    if (place >= 0 && place < count) return static_cast<size_t>(place);
    fail(number, "has " + counted(count, "column", "columns") + ", but " + parameter + " is " + std::to_string(asked) +
                     "; columns are counted from 0");
  }
  [[noreturn]] void fail(int64_t number, const std::string& what) const {
    throw DataError(options_.path + ":" + std::to_string(number) + ": " + what);
  }

  const WordTableOptions& options_;
  bool is_conllu_;
  bool has_tabs_ = false;
  SentenceMaker maker_;
  std::vector<std::string_view> cells_;
  size_t num_columns_ = 0;
  size_t word_column_ = 0;
  size_t label_column_ = 0;
  int64_t of_line_ = 0;
  int64_t first_line_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_passed_ = 0;
};

/// Lists of words and labels, a pair of them a row.
class ListReader {
 public:
  explicit ListReader(const WordTableOptions& options)
      : options_(options),
        words_(name_of(options.words, kUsualWords, "words")),
        labels_(name_of(options.labels, kUsualLabels, "labels")),
        maker_(options) {}

  WordTable read_objects() {
    for_each_line(options_.path, options_.encoding, [&](std::string_view line, int64_t number) {
      const nlohmann::json object = json_object(line, place(number));
      for (const nlohmann::json& word : list(object, words_, "words", number)) {
        if (!word.is_string()) fail(number, words_, std::string("expected texts, found ") + word.type_name());
        maker_.add_word(word.get<std::string>());
      }
      if (options_.has_labels) {
        for (const nlohmann::json& label : list(object, labels_, "labels", number)) {
          if (!label.is_string() && !label.is_number_integer()) {
            fail(number, labels_, std::string("expected texts or integers, found ") + label.type_name());
          }
          label.is_string() ? add_name(label.get<std::string>(), number) : add_number(label.get<int64_t>(), number);
        }
      }
      end(number);
    });
    return finish();
  }

  WordTable read_rows() {
    std::vector<std::string> columns = {words_};
    if (options_.has_labels) columns.push_back(labels_);
    for_each_arrow_row(options_.path, columns, [&](std::vector<Cell>& cells, int64_t number) {
      for (Cell& word : list(cells[0], words_, number)) maker_.add_word(text_in(word, place(number) + ":" + words_));
      if (options_.has_labels) {
        for (Cell& label : list(cells[1], labels_, number)) {
          if (label.kind == Cell::Kind::kInteger) {
            add_number(label.integer, number);
          } else {
            add_name(text_in(label, place(number) + ":" + labels_), number);
          }
        }
      }
      end(number);
    });
    return finish();
  }

 private:
  std::string name_of(const std::optional<WordColumn>& column, const char* usual, const char* parameter) const {
    if (!column) return usual;
    if (const auto* name = std::get_if<std::string>(&*column)) return *name;
    throw DataError(options_.path + ": its columns have names; write " + parameter + ": " + usual +
                    ", or what the file calls it");
  }
  std::string place(int64_t number) const { return options_.path + ":" + std::to_string(number); }
  [[noreturn]] void fail(int64_t number, const std::string& key, const std::string& what) const {
    throw DataError(place(number) + ":" + key + ": " + what);
  }
  const nlohmann::json& list(const nlohmann::json& object, const std::string& key, const char* parameter,
                             int64_t number) const {
    const auto found = object.find(key);
    if (found == object.end()) {
      throw DataError(place(number) + ": has no key '" + key + "'" + suggestion(key, keys_of(object)) + "; write " +
                      parameter + ": with the key of the lists");
    }
    if (!found->is_array()) fail(number, key, std::string("expected a list, found ") + found->type_name());
    return *found;
  }
  std::vector<Cell>& list(Cell& cell, const std::string& key, int64_t number) const {
    if (cell.kind != Cell::Kind::kList) fail(number, key, "expected a list");
    return cell.list;
  }
  void add_name(const std::string& name, int64_t number) {
    if (name.empty()) fail(number, labels_, "a label is missing");
    has_names_ = true;
    require_one_kind(number);
    maker_.add_label(name);
  }
  void add_number(int64_t label, int64_t number) {
    maker_.table().has_numbers = true;
    require_one_kind(number);
    maker_.add_label(std::to_string(label));
  }
  void require_one_kind(int64_t number) const {
    if (has_names_ && maker_.table().has_numbers) {
      fail(number, labels_, "labels are texts in one place and integers in another");
    }
  }
  void end(int64_t number) {
    WordTable& table = maker_.table();
    if (options_.has_labels && table.labels.size() != table.words.size()) {
      const int64_t begin = table.begins.back();
      throw DataError(place(number) + ": has " + std::to_string(static_cast<int64_t>(table.words.size()) - begin) +
                      " words, but " + std::to_string(static_cast<int64_t>(table.labels.size()) - begin) + " labels");
    }
    if (maker_.has_open_sentence()) {
      maker_.end_sentence(number);
    } else {
      ++num_empty_;
    }
  }
  WordTable finish() {
    if (num_empty_ > 0) {
      maker_.table().notes.push_back(counted(num_empty_, "row has no words and is", "rows have no words and are") +
                                     " left out");
    }
    return maker_.finish();
  }

  const WordTableOptions& options_;
  std::string words_;
  std::string labels_;
  SentenceMaker maker_;
  bool has_names_ = false;
  int64_t num_empty_ = 0;
};

}  // namespace

bool has_word_lines(const std::string& path) { return !is_jsonl(path) && !is_arrow_file(path); }

WordTable read_word_table(const WordTableOptions& options) {
  if (has_word_lines(options.path)) return ColumnReader(options).read();
  ListReader reader(options);
  return is_arrow_file(options.path) ? reader.read_rows() : reader.read_objects();
}

}  // namespace trainrun
