// Texts without labels, a piece of their files at a time.
#include <algorithm>

#include "registry/data/tables/arrow_library.h"
#include "registry/data/tables/table_sources.h"
#include "registry/data/tables/unlabelled_rows.h"
#include "registry/text_data/encoded_texts.h"
#include "registry/text_data/text_sources.h"

namespace trainrun {
namespace {

using Names = std::vector<std::string>;

std::string_view without_end(std::string_view line) { return line.substr(0, line.find_last_not_of("\r\n") + 1); }

Names fields_in(std::string_view line) {
  Names fields;
  for (size_t begin = 0; begin <= line.size();) {
    if (fields.size() == kMostColumns) throw DataError("has more than " + std::to_string(kMostColumns) + " columns");
    const size_t end = std::min(line.find('\t', begin), line.size());
    fields.emplace_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

/// Lines with tabulators between their fields, in which quotation marks are text; or lines that are texts.
class LinesTable : public TableReader {
 public:
  /// `columns`: of which each must be in the first line for it to name them.
  LinesTable(const std::string& path, std::optional<TextEncoding> encoding, const Names& columns)
      : path_(path), lines_(path, encoding) {
    if (!next_line()) throw DataError(path + ": is empty");
    names_ = fields_in(line_);
    const auto has = [&](const std::string& name) {
      return std::find(names_.begin(), names_.end(), name) != names_.end();
    };
    has_names_ = columns.size() > 1 || std::all_of(columns.begin(), columns.end(), has);
    if (has_names_) return;
    names_ = columns;
    is_first_ = true;
  }

  const Names& names() const override { return names_; }

  bool next(std::vector<Cell>& row) override {
    if (!is_first_ && !next_line()) return false;
    is_first_ = false;
    Names fields = has_names_ ? fields_in(line_) : Names{std::move(line_)};
    if (fields.size() != names_.size()) {
      throw DataError(path_ + ":" + std::to_string(lines_.number()) + ": has " + std::to_string(fields.size()) +
                      " columns, the first line " + std::to_string(names_.size()));
    }
    row.assign(fields.size(), Cell());
    for (size_t i = 0; i < fields.size(); ++i) {
      row[i].kind = Cell::Kind::kText;
      row[i].text = std::move(fields[i]);
    }
    return true;
  }

  int64_t row_number() const override { return lines_.number(); }

 private:
  bool next_line() {
    if (!lines_.next(line_)) return false;
    line_.resize(without_end(line_).size());
    return true;
  }

  std::string path_;
  TextLines lines_;
  std::string line_;
  Names names_;
  bool has_names_ = false;
  bool is_first_ = false;  // the line that was read is the first row
};

class LinesSource : public TableSource {
 public:
  LinesSource(std::string path, std::optional<TextEncoding> encoding, Names columns)
      : path_(std::move(path)), encoding_(encoding), columns_(std::move(columns)) {}
  std::unique_ptr<TableReader> open() const override {
    return std::make_unique<LinesTable>(path_, encoding_, columns_);
  }
  std::string place(int64_t row_number) const override { return path_ + ":" + std::to_string(row_number); }
  TableKind kind() const override { return TableKind::kCsv; }
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    return std::make_unique<LinesSource>(path, encoding_, columns_);
  }

 private:
  std::string path_;
  std::optional<TextEncoding> encoding_;
  Names columns_;
};

Names labels_of(const TextTableOptions& like) { return like.label ? Names{*like.label} : Names(); }

class UnlabelledTexts : public UnlabelledRows {
 public:
  UnlabelledTexts(const UnlabelledSource& from, const EncodedTexts& like)
      : UnlabelledRows(from, {like.source().text_columns, labels_of(like.source()), {}},
                       text_sources(from.paths, like.source().text_columns, like.source().encoding)),
        like_(like.without_labels()),
        columns_(like.source().text_columns) {}

 protected:
  void take(const std::vector<Cell*>& cells, const TableSource&, int64_t, const std::string& place) override {
    texts_.first.push_back(text_in(*cells[0], place + ":" + columns_[0]));
    if (cells.size() > 1) texts_.second.push_back(text_in(*cells[1], place + ":" + columns_[1]));
  }
  void cut(int64_t count) override {
    const auto rows = static_cast<size_t>(count);
    if (texts_.first.size() > rows) texts_.first.resize(rows);
    if (texts_.second.size() > rows) texts_.second.resize(rows);
  }
  std::unique_ptr<Dataset> make(std::vector<std::string> places, std::vector<int64_t> numbers) override {
    texts_.lines = std::move(numbers);
    std::unique_ptr<EncodedTexts> samples = like_->without_labels();
    samples->open_rows(std::exchange(texts_, {}), std::move(places));
    if (!source().learnt.is_null()) samples->set_learnt(source().learnt);
    return samples;
  }

 private:
  std::unique_ptr<EncodedTexts> like_;
  Names columns_;
  TextRows texts_;  // of the piece that is read
};

}  // namespace

std::vector<std::unique_ptr<TableSource>> text_sources(const std::vector<std::string>& paths, const Names& columns,
                                                       std::optional<TextEncoding> encoding) {
  std::vector<std::unique_ptr<TableSource>> files;
  const LinesSource lines("", encoding, columns);
  for (const std::string& path : paths) {
    const std::string& first = columns.front();
    files.push_back(has_extension(path, ".csv") ? csv_source(path, first, encoding.value_or(TextEncoding::kUtf8))
                                                : source_of_file(lines, path, first));
  }
  return files;
}

std::unique_ptr<UnlabelledData> read_unlabelled_texts(const UnlabelledSource& source, const EncodedTexts& like) {
  if (source.with_target) throw DataError("a series of texts cannot be forecast");
  return std::make_unique<UnlabelledTexts>(source, like);
}

}  // namespace trainrun
