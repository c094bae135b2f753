#include "registry/datasets/text_table.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>

#include "registry/datasets/arrow_library.h"
#include "registry/datasets/csv_reader.h"
#include "registry/datasets/text_corpus.h"
#include "registry/error.h"

namespace trainrun {
namespace {

bool has_ending(const std::string& path, const std::string& ending) {
  return path.ends_with(ending) || path.ends_with(ending + ".gz");
}

std::string line_place(const std::string& path, int64_t line) { return path + ":" + std::to_string(line); }

/// A text, or a label's integer or truth value (1 or 0) as one.
std::string text_of(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Takes rows by the names of their columns.
class RowTaker {
 public:
  RowTaker(const TextTableOptions& options, const std::vector<std::string>& names) : options_(options) {
    for (const std::string& column : options.text_columns) wanted_.push_back(index_of(column, names));
    if (options.label) wanted_.push_back(index_of(*options.label, names));
    num_columns_ = names.size();
    needed_ = *std::max_element(wanted_.begin(), wanted_.end()) + 1;
  }

  void take(std::vector<std::string>& row, int64_t line, TextRows& table) const {
    if (options_.leaves_out_short_rows && row.size() < needed_) {
      ++table.left_out;
      return;
    }
    if (row.size() != num_columns_ && !options_.leaves_out_short_rows) {
      throw DataError(line_place(options_.path, line) + ": has " + std::to_string(row.size()) +
                      " columns, the first line " + std::to_string(num_columns_));
    }
    const bool has_second = options_.text_columns.size() > 1;
    table.first.push_back(std::move(row[wanted_[0]]));
    if (has_second) table.second.push_back(std::move(row[wanted_[1]]));
    if (options_.label) table.labels.push_back(std::move(row[wanted_.back()]));
    table.lines.push_back(line);
  }

 private:
  size_t index_of(const std::string& column, const std::vector<std::string>& names) const {
    const auto found = std::find(names.begin(), names.end(), column);
    if (found == names.end()) {
      throw DataError(options_.path + ": has no column '" + column + "'" + suggestion(column, names));
    }
    return static_cast<size_t>(found - names.begin());
  }

  const TextTableOptions& options_;
  std::vector<size_t> wanted_;
  size_t num_columns_ = 0;
  size_t needed_ = 0;  // columns, up to the last that is wanted
};

TextRows read_csv(const TextTableOptions& options) {
  CsvReader reader(options.path, ',', options.encoding);
  std::vector<std::string> row;
  if (!reader.next(row)) throw DataError(options.path + ": is empty");
  const RowTaker taker(options, row);
  TextRows table;
  while (reader.next(row)) taker.take(row, reader.line(), table);
  return table;
}

TextRows read_tsv(const TextTableOptions& options) {
  std::optional<RowTaker> taker;
  if (!options.names.empty()) taker.emplace(options, options.names);
  TextRows table;
  std::vector<std::string> row;
  for_each_line(options.path, options.encoding, [&](std::string_view line, int64_t number) {
    row.clear();
    for (size_t begin = 0; begin <= line.size();) {
      if (row.size() == kMostColumns) {
        throw DataError(line_place(options.path, number) + ": has more than " + std::to_string(kMostColumns) +
                        " columns");
      }
      const size_t end = std::min(line.find('\t', begin), line.size());
      row.emplace_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    if (taker) {
      taker->take(row, number, table);
    } else {
      taker.emplace(options, row);
    }
  });
  if (!taker) throw DataError(options.path + ": is empty");
  return table;
}

TextRows read_jsonl(const TextTableOptions& options) {
  std::vector<std::string> names = options.text_columns;
  if (options.label) names.push_back(*options.label);
  const RowTaker taker(options, names);
  TextRows table;
  std::vector<std::string> row;
  for_each_line(options.path, options.encoding, [&](std::string_view line, int64_t number) {
    const nlohmann::json object = json_object(line, line_place(options.path, number));
    row.clear();
    for (const std::string& name : names) {
      const auto found = object.find(name);
      if (found == object.end()) throw DataError(line_place(options.path, number) + ": has no key '" + name + "'");
      const bool is_label = options.label && name == *options.label;
      const bool fits = found->is_string() || (is_label && (found->is_number_integer() || found->is_boolean()));
      if (!fits) {
        throw DataError(line_place(options.path, number) + ":" + name + ": expected a text, found " +
                        found->type_name());
      }
      row.push_back(text_of(*found));
    }
    taker.take(row, number, table);
  });
  return table;
}

/// Texts and labels as cells; a label may be a number.
TextRows read_arrow(const TextTableOptions& options) {
  std::vector<std::string> names = options.text_columns;
  if (options.label) names.push_back(*options.label);
  const RowTaker taker(options, names);
  TextRows table;
  std::vector<std::string> row;
  for_each_arrow_row(options.path, names, [&](std::vector<Cell>& cells, int64_t number) {
    row.clear();
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool is_number = i >= options.text_columns.size() && cells[i].kind == Cell::Kind::kInteger;
      row.push_back(is_number ? std::to_string(cells[i].integer)
                              : text_in(cells[i], line_place(options.path, number) + ":" + names[i]));
    }
    taker.take(row, number, table);
  });
  return table;
}

}  // namespace

TextRows read_text_table(const TextTableOptions& options) {
  TextRows table = has_ending(options.path, ".csv")     ? read_csv(options)
                   : has_ending(options.path, ".jsonl") ? read_jsonl(options)
                   : is_arrow_file(options.path)        ? read_arrow(options)
                                                        : read_tsv(options);
  if (table.first.empty()) throw DataError(options.path + ": has no rows");
  return table;
}

}  // namespace trainrun
