#include "runner/init/table_sight.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>

#include "registry/data/data_file.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/tables/csv_reader.h"
#include "registry/data/tables/dates.h"
#include "registry/data/tables/table_columns.h"
#include "registry/data/tables/table_sources.h"
#include "registry/data/text_corpus.h"
#include "registry/data/text_file.h"
#include "registry/image_data/image_files.h"
#include "registry/language/text_forms.h"
#include "runner/init/comment_lines.h"
#include "runner/init/draft.h"
#include "runner/init/file_encoding.h"

namespace trainrun {
namespace {

constexpr size_t kMostCounted = 1000;            // different values of a column
constexpr size_t kMostRowsCompared = 5'000'000;  // rows

/// What is between the columns of a file of delimited text; a comma where there is one column alone.
char delimiter_of(const std::string& path, const std::optional<TextEncoding>& encoding) {
  if (has_extension(path, ".tsv")) return '\t';
  std::string first;
  if (!TextLines(path, encoding).next(first)) throw DataError(path + ": is empty");
  const bool is_one =
      first.find_first_of(",;|\t\"") == std::string::npos;  // a name in quotation marks may have several lines
  return is_one ? ',' : find_delimiter(path, encoding, ",;\t|");
}

bool is_delimited(const std::string& path) { return has_extension(path, ".csv") || has_extension(path, ".tsv"); }

/// Of delimited text in another encoding than UTF-8: csv_source finds the delimiter again, by the first column's name.
std::unique_ptr<TableSource> encoded_source(const std::string& path, char delimiter, TextEncoding encoding) {
  std::vector<std::string> names;
  if (!CsvReader(path, delimiter, encoding).next(names)) throw DataError(path + ": is empty");
  std::unique_ptr<TableSource> source = csv_source(path, names.at(0), encoding);
  if (source->open()->names() == names) return source;
  throw DataError(path + ": its columns cannot be told apart in the encoding " + word_of(encoding) +
                  "; convert it: " + conversion_command(path, iconv_name(encoding)));
}

std::unique_ptr<TableSource> open_table(const std::string& path, TableSight& sight) {
  if (is_arrow_file(path)) {
    sight.type = "Parquet";
    return arrow_source(path);
  }
  if (has_extension(path, ".jsonl") || has_extension(path, ".ndjson")) {
    sight.type = "JSONL";
    TableOptions options;
    options.path = path;
    return jsonl_source(path);
  }
  if (has_extension(path, ".sqlite") || has_extension(path, ".db") || has_extension(path, ".sqlite3")) {
    sight.type = "SQLite";
    sight.settings.push_back("table: " + recipe_word(only_sqlite_table(path)));
    return sqlite_source(path);
  }
  sight.type = "CSV";
  TableOptions options;
  options.path = path;
  const char delimiter = delimiter_of(path, sight.encoding);
  if (delimiter != ',') {
    sight.settings.push_back("delimiter: " + delimiter_text(delimiter));
    sight.told.push_back("columns are separated by " + delimiter_text(delimiter));
  }
  return sight.encoding ? encoded_source(path, delimiter, *sight.encoding) : csv_source(options, delimiter);
}

Cell text_cell(const std::string& text) {
  Cell cell;
  cell.kind = Cell::Kind::kText;
  cell.text = text;
  return cell;
}

/// Whether a text is a number with a sign or unit of a few characters, before or after it: "349.160,97 €", "USD 20".
bool is_amount(const std::string& text) {
  constexpr size_t kMostOfUnit = 5;  // bytes
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto first = std::ranges::find_if(text, is_digit);
  if (first == text.end()) return false;
  const auto end = std::find_if(text.rbegin(), text.rend(), is_digit).base();
  const auto is_of_number = [&](char c) {
    return is_digit(c) || std::string_view(".,' ").find(c) != std::string::npos;
  };
  const auto unit = static_cast<size_t>((first - text.begin()) + (text.end() - end));
  return std::all_of(first, end, is_of_number) && unit <= kMostOfUnit;
}

/// What one column's cells hold beyond what ColumnFacts keeps.
class ColumnReader {
 public:
  explicit ColumnReader(ColumnSight& sight) : sight_(sight) { last_.fill(-std::numeric_limits<double>::infinity()); }

  void add(const Cell& cell, const MissingValues& missing, int64_t row) {
    sight_.facts.add(cell, missing, row);
    if (missing.contains(cell, false)) {
      sight_.counts_up = false;
      if (!missing.contains(cell, true)) ++sight_.words_counts[text_of(cell)];
      return;
    }
    if (cell.kind == Cell::Kind::kList || cell.kind == Cell::Kind::kObject) return;
    const std::string text = text_of(cell);
    count(text);
    if (const auto number = parse_cell_number(cell)) {
      add_number(*number);
      are_no_images();
    } else {
      add_text(cell.text);
    }
  }

 private:
  void count(const std::string& text) {
    const auto found = sight_.counts.find(text);
    if (found != sight_.counts.end()) {
      ++found->second;
    } else if (sight_.counts.size() < kMostCounted) {
      sight_.counts.emplace(text, 1);
    } else {
      sight_.counts_all = false;
    }
  }
  void add_number(double number) {
    if (numbers_ == 0) sight_.least = sight_.most = number;
    sight_.least = std::min(sight_.least, number);
    sight_.most = std::max(sight_.most, number);
    if (number != std::floor(number) || (numbers_ > 0 && number != last_number_ + 1)) sight_.counts_up = false;
    last_number_ = number;
    ++numbers_;
  }
  void are_no_images() {
    sight_.is_image = false;
    sight_.images = {};
  }
  void add_text(const std::string& text) {
    sight_.counts_up = false;
    ++sight_.texts;
    if (is_amount(text) && sight_.amounts++ == 0) sight_.first_amount = text;
    bool in_word = false;
    for (const char c : text) {
      const bool is_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
      if (!is_space && !in_word) ++sight_.words;
      in_word = !is_space;
    }
    if (sight_.is_image && !is_image_name(text)) are_no_images();
    if (sight_.is_image) sight_.images.push_back(text);
    for (size_t i = 0; i < last_.size(); ++i) {
      if (!sight_.ascends[i]) continue;
      const auto day = parse_date(text, date_formats()[i]);
      if (!day || *day < last_[i]) sight_.ascends[i] = false;
      if (day) last_[i] = *day;
    }
  }

  ColumnSight& sight_;
  int64_t numbers_ = 0;
  double last_number_ = 0;
  std::array<double, 5> last_{};
};

/// Whether the first line holds data and no names: most of its fields are numbers.
bool is_data(const std::vector<std::string>& names) {
  const auto numbers = std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return parse_cell_number(text_cell(name)).has_value();
  });
  return 2 * numbers > static_cast<std::ptrdiff_t>(names.size());
}

using NaValues = std::optional<std::vector<std::string>>;  // nothing: the usual ones

class TableLooker {
 public:
  explicit TableLooker(TableSight& sight, const NaValues& na_values = std::nullopt)
      : sight_(sight), missing_(na_values) {
    for (ColumnSight& column : sight.columns) readers_.emplace_back(column);
  }
  void add(const std::vector<Cell>& row, int64_t number) {
    size_t digest = 0;
    for (size_t i = 0; i < readers_.size(); ++i) {
      readers_[i].add(row[i], missing_, number);
      const bool is_value = row[i].kind != Cell::Kind::kList && row[i].kind != Cell::Kind::kObject;
      digest = digest * 1099511628211U + std::hash<std::string>()(is_value ? text_of(row[i]) : "list");
      has_lists_ = has_lists_ || !is_value;
    }
    ++sight_.rows;
    if (!has_lists_ && seen_.size() < kMostRowsCompared && !seen_.insert(digest).second) ++sight_.copies;
  }

 private:
  TableSight& sight_;
  MissingValues missing_;
  std::vector<ColumnReader> readers_;
  std::unordered_set<size_t> seen_;
  bool has_lists_ = false;
};

/// The places of the columns of types that can be read, which alone `reader` then reads; the names of the others go to
/// `unread`.
std::vector<size_t> readable_columns(TableReader& reader, std::vector<std::string>& unread) {
  std::vector<size_t> places;
  for (size_t i = 0; i < reader.names().size(); ++i) {
    try {
      reader.read_only({i});
      places.push_back(i);
    } catch (const ReadError&) {
      throw;
    } catch (const DataError&) {
      unread.push_back(reader.names()[i]);
    }
  }
  if (places.empty()) reader.read_only({0});  // which throws
  reader.read_only(places);
  return places;
}

/// Looks through all rows, whose numbers are written as `format` says.
TableSight look_through(const std::string& path, const std::optional<TextEncoding>& encoding,
                        const std::optional<NumberFormat>& format, const NaValues& na_values) {
  TableSight sight;
  sight.path = path;
  sight.encoding = encoding;
  const std::unique_ptr<TableSource> source = open_table(path, sight);
  const std::unique_ptr<TableReader> reader = source->open();
  const bool is_headless = sight.type == "CSV" && is_data(reader->names());
  std::vector<Cell> row;
  const std::vector<size_t> places = readable_columns(*reader, sight.unread);
  for (const size_t i : places) {
    ColumnSight column;
    column.name = is_headless ? std::to_string(i) : reader->names()[i];
    if (is_headless) row.push_back(text_cell(reader->names()[i]));
    sight.columns.push_back(std::move(column));
  }
  TableLooker looker(sight, na_values);
  const auto add = [&](int64_t number) {
    for (Cell& cell : row) cell.format = format ? &*format : cell.format;
    looker.add(row, number);
  };
  if (is_headless) {
    sight.settings.emplace_back("header: false");
    sight.told.emplace_back("the first line holds data, so that columns are called by their numbers, '0' the first");
    add(1);
  }
  for (std::vector<Cell> whole; reader->next(whole); add(reader->row_number())) {
    row.resize(places.size());
    for (size_t i = 0; i < places.size(); ++i) std::swap(row[i], whole[places[i]]);
  }
  if (sight.rows == 0) throw DataError(path + ": has no rows below the names of its columns");
  return sight;
}

/// The fields between the tabs of a .tsv file's lines, in which quotation marks are text. Nothing where the lines do not
/// have equally many.
std::optional<TableSight> look_through_lines(const std::string& path, const std::optional<TextEncoding>& encoding) {
  TableSight sight;
  sight.path = path;
  sight.encoding = encoding;
  sight.type = "CSV";
  std::optional<TableLooker> looker;
  std::vector<Cell> row;
  bool is_whole = true;
  for_each_line(path, encoding, [&](std::string_view line, int64_t number) {
    row.clear();
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find('\t', begin), line.size());
      row.push_back(text_cell(std::string(line.substr(begin, end - begin))));
      begin = end + 1;
    }
    if (!looker) {
      for (const Cell& cell : row) sight.columns.emplace_back().name = cell.text;
      looker.emplace(sight);
      return;
    }
    is_whole = is_whole && row.size() == sight.columns.size();
    if (is_whole) looker->add(row, number);
  });
  if (!is_whole || sight.rows == 0) return std::nullopt;
  return sight;
}

/// How the numbers with commas of a CSV file are written, if there are any: where commas are decimal anywhere, they are
/// everywhere.
std::string format_of(const TableSight& sight) {
  std::string best;
  for (const ColumnSight& column : sight.columns) {
    const std::string format = sight.type == "CSV" ? column.facts.number_format() : "";
    const auto worth = [](const std::string& text) { return std::pair(text.starts_with("decimal"), text.size()); };
    if (!format.empty() && worth(format) > worth(best)) best = format;
  }
  return best;
}

/// `encoding`: what the recipe says of it.
TableSight look_whole(const std::string& path, const std::optional<TextEncoding>& encoding,
                      const NaValues& na_values = std::nullopt) {
  TableSight sight;
  try {
    sight = look_through(path, encoding, std::nullopt, na_values);
  } catch (const DataError& error) {
    std::optional<TableSight> lines;
    if (has_extension(path, ".tsv")) lines = look_through_lines(path, encoding);
    if (!lines) throw;
    lines->quotation_fault = error.what();
    return std::move(*lines);
  }
  const std::string format = format_of(sight);
  if (format.empty()) return sight;
  const size_t both = format.find(" and ");
  NumberFormat numbers;
  if (format.starts_with("decimal")) numbers.decimal = ',';
  if (const size_t at = format.find("thousands: '"); at != std::string::npos) numbers.thousands = format[at + 12];
  sight = look_through(path, encoding, numbers, na_values);
  sight.settings.push_back(format.substr(0, both));
  if (both != std::string::npos) sight.settings.push_back(format.substr(both + 5));
  sight.told.push_back("numbers are written with " + format);
  return sight;
}

}  // namespace

bool ColumnSight::is_in_order(const ColumnOptions& options) const {
  for (size_t i = 0; i < date_formats().size(); ++i) {
    if (date_formats()[i] == options.format.value_or("")) return ascends[i] && texts > 0;
  }
  return false;
}

const ColumnSight* TableSight::find(const std::string& name) const {
  const auto found = std::find_if(columns.begin(), columns.end(), [&](const auto& one) { return one.name == name; });
  return found == columns.end() ? nullptr : &*found;
}

std::vector<std::string> TableSight::names() const {
  std::vector<std::string> names;
  for (const ColumnSight& column : columns) names.push_back(column.name);
  return names;
}

std::vector<ColumnFacts> TableSight::facts() const {
  std::vector<ColumnFacts> facts;
  for (const ColumnSight& column : columns) facts.push_back(column.facts);
  return facts;
}

bool is_table_name(const std::string& path) {
  if (is_arrow_file(path)) return true;
  for (const char* ending : {".csv", ".tsv", ".jsonl", ".ndjson", ".sqlite", ".sqlite3", ".db"}) {
    if (has_extension(path, ending) || has_extension(path, std::string(ending) + ".gz")) return true;
  }
  return false;
}

TableSight look_at_table(const std::string& path, const std::optional<TextEncoding>& encoding) {
  if (!is_delimited(path)) return look_whole(path, std::nullopt);
  return look_in_encoding({path}, encoding, [&](const std::optional<TextEncoding>& found) {
    const std::string doubt = doubt_about_comments(path, found);
    TableSight sight = look_whole(path, found == TextEncoding::kUtf8 ? std::nullopt : found);
    if (!doubt.empty()) sight.doubts.push_back(doubt);
    return sight;
  });
}

TableSight look_again(const TableSight& table, const std::vector<std::string>& na_values) {
  return look_whole(table.path, table.encoding, na_values);
}

}  // namespace trainrun
