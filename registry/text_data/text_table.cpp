#include "registry/text_data/text_table.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "registry/data/data_file.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/tables/csv_reader.h"
#include "registry/data/text_corpus.h"
#include "registry/language/error.h"
#include "registry/text_data/first_rows.h"

namespace trainrun {
namespace {

std::string line_place(const std::string& path, int64_t line) { return path + ":" + std::to_string(line); }

/// A string; a label that is a number or a boolean (1 or 0) becomes one.
std::string text_of(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Whether a label that is null, or missing, is told, or left out, by who reads the rows.
bool may_lack(const TextTableOptions& options, bool is_label) { return is_label && options.can_leave_out_unlabelled; }

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
    if (options_.count) options_.count();
  }

  /// Also names the parameter, whose default the column may be.
  std::string name_advice(const std::string& column, const std::vector<std::string>& names) const {
    const std::string near = nearest(column, names);
    if (near.empty() || !options_.is_chosen || options_.text_columns.size() > 1) return suggestion(column, names);
    const std::string parameter = options_.label == column ? "label" : "text_columns";
    return "; did you mean " + near + "? Then write " + parameter + ": " + near;
  }

 private:
  /// By its name a file's columns have commas or tabulators between them.
  std::string advice(const std::string& column, const std::vector<std::string>& names) const {
    const char delimiter = is_jsonl(options_.path) ? '\0' : seeming_delimiter(names, column);
    if (delimiter == '\0') return name_advice(column, names);
    const std::string seeming = "; the columns seem to be separated by " + delimiter_text(delimiter);
    if (delimiter == '\t') return seeming + ": call the file .tsv";
    if (delimiter == ',') return seeming + ": call the file .csv";
    return seeming + ": save the table with commas, as .csv, or with tabs, as .tsv";
  }
  size_t index_of(const std::string& column, const std::vector<std::string>& names) const {
    const auto found = std::find(names.begin(), names.end(), column);
    if (found == names.end()) {
      throw DataError(options_.path + ": has no column '" + column + "'" + advice(column, names));
    }
    return static_cast<size_t>(found - names.begin());
  }

  const TextTableOptions& options_;
  std::vector<size_t> wanted_;
  size_t num_columns_ = 0;
  size_t needed_ = 0;  // columns, up to the last that is wanted
};

TextRows read_csv(const TextTableOptions& options) {
  CsvReader reader(options.path, ',', options.encoding, /*is_chosen=*/false);
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
      const bool is_label = options.label && name == *options.label;
      const bool is_absent = found == object.end();
      if (may_lack(options, is_label) && (is_absent ? options.leaves_out_unlabelled : found->is_null())) {
        row.emplace_back();
        continue;
      }
      if (is_absent) {
        throw DataError(line_place(options.path, number) + ": has no key '" + name + "'" +
                        taker.name_advice(name, keys_of(object)));
      }
      const bool fits = found->is_string() || (is_label && (found->is_number() || found->is_boolean()));
      if (!fits) {
        throw DataError(line_place(options.path, number) + ":" + name + ": expected a string" +
                        (is_label ? " or a number" : "") + ", found " + found->type_name());
      }
      row.push_back(text_of(*found));
    }
    taker.take(row, number, table);
  });
  return table;
}

/// As short as it may be so that it is read as the same number again.
std::string text_of(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
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
      const bool is_label = i >= options.text_columns.size();
      if (is_label && cells[i].kind == Cell::Kind::kInteger) {
        row.push_back(std::to_string(cells[i].integer));
      } else if (is_label && cells[i].kind == Cell::Kind::kNumber) {
        row.push_back(text_of(cells[i].number));
      } else if (may_lack(options, is_label) && cells[i].kind == Cell::Kind::kMissing) {
        row.emplace_back();
      } else {
        row.push_back(text_in(cells[i], line_place(options.path, number) + ":" + names[i]));
      }
    }
    taker.take(row, number, table);
  });
  return table;
}

}  // namespace

namespace {

/// How a file would be called that is what its first line looks like: "; call the file .csv", or "".
std::string name_hint(const TextTableOptions& options) {
  constexpr size_t kEnough = 4096;
  std::string line(kEnough, '\0');
  line.resize(DataFile(options.path).read(line.data(), line.size()));
  line.resize(std::min(line.find_first_of("\r\n"), line.size()));
  if (line.starts_with('{')) return "; call the file .jsonl";
  const char delimiter = seeming_delimiter({line}, options.text_columns.front());
  return delimiter == ',' ? "; call the file .csv" : delimiter == '\t' ? "; call the file .tsv" : "";
}

}  // namespace

TextRows read_text_table(const TextTableOptions& options) {
  const auto ends = [&](std::string_view extension) { return has_extension(options.path, extension); };
  if (!ends(".csv") && !is_jsonl(options.path) && !is_arrow_file(options.path) && !ends(".tsv") && !ends(".txt")) {
    throw DataError(options.path +
                    ": its name does not say what it is; expected .csv, .tsv, .txt, .jsonl, .json (an object in each "
                    "line), .parquet, .arrow or .feather" +
                    name_hint(options));
  }
  TextRows table = ends(".csv")                  ? read_csv(options)
                   : is_jsonl(options.path)      ? read_jsonl(options)
                   : is_arrow_file(options.path) ? read_arrow(options)
                                                 : read_tsv(options);
  if (table.first.empty()) throw DataError(options.path + ": has no rows");
  return table;
}

void look_at_text_table(const TextTableOptions& options) {
  look_at_first_rows(options.path, [&](const std::function<void()>& count) {
    TextTableOptions first = options;
    first.count = count;
    read_text_table(first);
  });
}

}  // namespace trainrun
