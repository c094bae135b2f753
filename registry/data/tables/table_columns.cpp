#include "registry/data/tables/table_columns.h"

#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "registry/data/tables/dates.h"
#include "registry/data/text_file.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"
#include "registry/language/text_view.h"

namespace trainrun {

std::string shown(std::string_view text) {
  constexpr size_t kMostShown = 40;
  return "'" + shortened(text, kMostShown) + "'";
}

std::string text_of(const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kMissing:
      return "";
    case Cell::Kind::kText:
      return std::string(trimmed(cell.text));
    case Cell::Kind::kInteger:
      return std::to_string(cell.integer);
    case Cell::Kind::kNumber:
      if (std::isinf(cell.number)) return cell.number > 0 ? "inf" : "-inf";  // which JSON does not have
      return nlohmann::json(cell.number).dump();
    case Cell::Kind::kObject:
      return "(an object)";
    case Cell::Kind::kList:
      break;
  }
  return "(a list)";
}

void require_room(int64_t rows, size_t columns, const std::string& path) {
  constexpr double kBytes = 2 * sizeof(double);  // of a value while fields are made of the columns, at the least
  const double needed = static_cast<double>(rows) * static_cast<double>(columns) * kBytes;
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= memory) return;
  throw DataError(path + ": has " + std::to_string(rows) + " rows or more, which do not fit into the " +
                  std::to_string(std::llround(memory / 1e9)) +
                  " GB of this machine's memory; name fewer columns in features, or fewer rows");
}

bool MissingValues::contains(const Cell& cell, bool of_category) const {
  if (cell.kind == Cell::Kind::kMissing) return true;
  if (cell.kind != Cell::Kind::kText) return false;
  const std::string_view text = trimmed(cell.text);
  if (texts_) return std::find(texts_->begin(), texts_->end(), text) != texts_->end();
  if (text.empty() || of_category) return text.empty();
  return std::find(words().begin(), words().end(), text) != words().end();
}

const std::vector<std::string>& MissingValues::words() {
  static const std::vector<std::string> all = {"NA",  "N/A",  "n/a",  "#N/A", "<NA>", "NaN",
                                               "nan", "-nan", "null", "NULL", "None", "?"};
  return all;
}

std::optional<bool> parse_boolean(const Cell& cell) {
  if (cell.kind == Cell::Kind::kList || cell.kind == Cell::Kind::kMissing) return std::nullopt;
  std::string text = cell.is_boolean ? (cell.integer != 0 ? "true" : "false") : text_of(cell);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); });
  for (const char* yes : {"true", "t", "yes", "y", "on", "1", "1.0"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "f", "no", "n", "off", "0", "0.0"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

namespace {

/// Whether marks lie where people put them: three digits follow the last, two (in India) or three each other, and one to
/// three digits come before the first. So 1.5 is not read as 15.
bool are_grouped(std::string_view whole, char mark) {
  size_t begin = 0;
  while (begin < whole.size() && !is_digit(whole[begin])) ++begin;
  size_t end = begin;
  while (end < whole.size() && (is_digit(whole[end]) || whole[end] == mark)) ++end;
  if (whole.substr(end).find(mark) != std::string_view::npos) return false;
  if (whole.substr(0, begin).find(mark) != std::string_view::npos) return false;
  const std::string_view digits = whole.substr(begin, end - begin);
  for (size_t from = 0, to = digits.find(mark); to != std::string_view::npos;
       from = to + 1, to = digits.find(mark, from)) {
    const size_t after = std::min(digits.find(mark, to + 1), digits.size()) - to - 1;
    const bool is_last = to + 1 + after == digits.size();
    if (to - from < 1 || to - from > 3 || (after != 3 && (is_last || after != 2))) return false;
  }
  return true;
}

}  // namespace

std::string NumberFormat::standard(std::string_view text) const {
  if (thousands != '\0' && !are_grouped(text.substr(0, text.find(decimal)), thousands)) return "";
  std::string result;
  bool is_fraction = false;
  for (const char character : text) {
    if (character == decimal) {
      if (is_fraction) return "";
      is_fraction = true;
      result += '.';
    } else if (character == thousands && thousands != '\0') {
      if (is_fraction) return "";
    } else if (character == '.') {
      return "";
    } else {
      result += character;
    }
  }
  return result;
}

namespace {

/// The text of a cell, with a number in it as C writes it.
std::string plain_text_of(const Cell& cell) {
  const bool has_format = cell.kind == Cell::Kind::kText && cell.format;
  return has_format ? cell.format->standard(trimmed(cell.text)) : text_of(cell);
}

}  // namespace

std::optional<double> parse_cell_number(const Cell& cell) {
  if (cell.kind == Cell::Kind::kInteger) return static_cast<double>(cell.integer);
  if (cell.kind == Cell::Kind::kNumber) return cell.number;
  if (cell.kind != Cell::Kind::kText) return std::nullopt;
  const std::string converted = cell.format ? cell.format->standard(trimmed(cell.text)) : "";
  const std::string_view text = cell.format ? std::string_view(converted) : trimmed(cell.text);
  return data_number_of(text);
}

void Column::cut(int64_t rows) {
  int64_t count = rows * options.numel();
  if (options.is_sequence()) {
    begins.resize(std::min(begins.size(), static_cast<size_t>(rows) + 1));
    count = begins.back() * options.numel();
  }
  const auto most = static_cast<size_t>(count);
  if (options.is_category() || options.is_integer()) {
    integers.resize(std::min(integers.size(), most));
  } else {
    numbers.cut(most);
  }
}

Column make_column(const std::string& name, size_t place, const ColumnOptions& options) {
  Column column;
  column.name = name;
  column.options = options;
  column.place = place;
  if (options.categories) column.categories = *options.categories;
  if (is_statistic(options) || is_error(options)) return column;
  if (const auto* number = std::get_if<double>(&options.missing)) {
    column.missing_number = *number;
    column.missing_category = detail::number_text(*number);
  } else {
    column.missing_category = std::get<std::string>(options.missing);
  }
  return column;
}

nlohmann::json learnt_of(const Column& column) {
  nlohmann::json own = nlohmann::json::object();
  if (!column.categories.empty() && !column.options.categories) own["categories"] = column.categories;
  if (column.missing_number) own["missing"] = *column.missing_number;
  if (column.options.is_category() && is_statistic(column.options)) own["missing"] = column.missing_category;
  return own;
}

void set_learnt_of(Column& column, const nlohmann::json& state) {
  if (!column.learns()) return;
  const nlohmann::json& own = state.at(column.name);
  if (own.contains("categories")) column.categories = own["categories"].get<std::vector<std::string>>();
  if (!own.contains("missing")) return;
  if (column.options.is_category()) {
    column.missing_category = own["missing"].get<std::string>();
  } else {
    column.missing_number = own["missing"].get<double>();
  }
}

std::string category_fault(const Column& column, const std::string& name) {
  const std::string meant = read_as_utf8(name);
  const auto& known = column.categories;
  if (!meant.empty() && std::find(known.begin(), known.end(), meant) != known.end()) {
    return "category " + shown(name) + " is " + shown(meant) + " in another encoding: write encoding: utf-8";
  }
  return "category " + shown(name) + (column.options.categories ? " is not listed" : " is in no training sample") +
         suggestion(name, column.categories) + "; allow_unknown: true " +
         (column.options.one_hot ? "reads it as all 0" : "gives it an index of its own");
}

at::Tensor ColumnNumbers::tensor(const std::vector<int64_t>& shape) const {
  return (is_wide_ ? at::tensor(wide_, at::kDouble) : at::tensor(narrow_, at::kFloat)).view(shape);
}

namespace {

/// NumPy's median.
double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double upper = values[half];
  return values.size() % 2 == 1 ? upper : (values[half - 1] + upper) / 2;
}

[[noreturn]] void fail_without_value(const Column& column, const std::string& path) {
  throw DataError(path + ": column '" + column.name + "': no training sample has a value");
}

/// " ('NA')" where a text says so.
std::string missing_text(const Cell& cell) {
  const std::string text = cell.kind == Cell::Kind::kText ? text_of(cell) : "";
  return text.empty() ? "" : " (" + shown(text) + ")";
}
}  // namespace

void CellParser::fail(const std::string& column, const std::string& fault) const {
  throw DataError(source_.place(row_number_) + ":" + column + id_text(id_names_, id_) + ": " + fault);
}

std::string id_text(const std::vector<std::string>& names, std::span<const std::string> values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ", ") + names[i] + " " + shown(values[i]);
  return text.empty() ? "" : " (" + text + ")";
}

double CellParser::number(const Cell& cell, const std::string& column) const {
  if (is_missing(cell)) fail(column, "the value is missing" + missing_text(cell));
  if (cell.kind == Cell::Kind::kList) {
    fail(column, "is a list; say its shape, or its max_length where lists have different lengths");
  }
  if (cell.kind == Cell::Kind::kObject) fail(column, "is an object, expected a number");
  const auto value = parse_cell_number(cell);
  if (!value && trimmed(cell.text).empty()) fail(column, "the value is missing");
  if (!value || std::isnan(*value)) fail(column, shown(text_of(cell)) + " is not a number");
  if (std::isinf(static_cast<float>(*value))) fail(column, shown(text_of(cell)) + " is too large or too small");
  return *value;
}

bool CellParser::boolean(const Cell& cell, const std::string& column) const {
  if (is_missing(cell)) fail(column, "the value is missing" + missing_text(cell));
  const auto value = parse_boolean(cell);
  if (!value) fail(column, shown(text_of(cell)) + " is neither true nor false");
  return *value;
}

void CellParser::add_boolean_class(const Cell& cell, Column& column) const {
  const bool value = boolean(cell, column.name);
  column.integers.push_back(value ? 1 : 0);
  column.words[value ? 1 : 0].insert(cell.is_boolean ? (value ? "true" : "false") : text_of(cell));
}

double CellParser::feature(const Cell& cell, const Column& column) const {
  if (column.options.is_boolean()) return boolean(cell, column.name) ? 1 : 0;
  if (!column.options.is_date()) return number(cell, column.name);
  if (is_missing(cell)) fail(column.name, "the value is missing" + missing_text(cell));
  const std::string format = column.options.format.value_or("");
  const auto days = cell.kind == Cell::Kind::kText ? parse_any_date(trimmed(cell.text), format) : std::nullopt;
  if (!days) {
    fail(column.name, shown(text_of(cell)) + " is not a date" +
                          (format.empty() ? " as ISO 8601 writes it, 2024-05-31; another form is named by format"
                                          : " of the form " + format));
  }
  return *days;
}

int64_t CellParser::integer(const Cell& cell, const std::string& column) const {
  if (is_missing(cell)) fail(column, "the value is missing" + missing_text(cell));
  if (cell.kind == Cell::Kind::kInteger) return cell.integer;
  const auto value = cell.kind == Cell::Kind::kList ? std::nullopt : parse_integer(plain_text_of(cell));
  if (!value) fail(column, shown(text_of(cell)) + " is not an integer");
  return *value;
}

int64_t CellParser::class_index(const Cell& cell, const std::string& column, std::optional<int64_t> num_classes) const {
  if (is_missing(cell)) fail(column, "the value is missing" + missing_text(cell));
  const auto value =
      cell.kind == Cell::Kind::kInteger ? std::optional(cell.integer) : parse_integer(plain_text_of(cell));
  if (!value) {
    const bool is_number = parse_cell_number(cell).has_value();
    fail(column, shown(text_of(cell)) + " is not a class, which is an integer from 0" +
                     (is_number ? "; to predict numbers write task: regression" : ""));
  }
  if (*value < 0 || (num_classes && *value >= *num_classes)) {
    fail(column, "class " + std::to_string(*value) + " is not " +
                     (num_classes ? "from 0 to " + std::to_string(*num_classes - 1) : "0 or more"));
  }
  return *value;
}

void CellParser::add_category(const Cell& cell, Column& column) const {
  if (is_missing(cell, true)) {
    if (is_error(column.options)) fail(column.name, "the value is missing");
    column.integers.push_back(kMissingCategory);
    return;
  }
  if (cell.kind == Cell::Kind::kList) fail(column.name, "is a list, expected a category");
  if (cell.kind == Cell::Kind::kObject) fail(column.name, "is an object, expected a category");
  const auto [it, is_new] = column.places.try_emplace(text_of(cell), static_cast<int64_t>(column.seen.size()));
  if (is_new) column.seen.push_back(it->first);
  column.integers.push_back(it->second);
}

void CellParser::add_list(const Cell& cell, Column& column) const {
  if (cell.kind != Cell::Kind::kList) fail(column.name, shown(text_of(cell)) + " is not a list");
  require_items(cell, column);
  const size_t count = add_items(cell, column);
  if (column.options.is_sequence()) {
    const auto item = static_cast<size_t>(column.options.numel());
    const size_t length = count / item;
    if (count % item != 0) {
      fail(column.name, "a list of " + std::to_string(count) + " numbers, expected items of " + std::to_string(item));
    }
    if (static_cast<int64_t>(length) > *column.options.max_length) {
      fail(column.name, "a list of " + std::to_string(length) + " items, max_length is " +
                            std::to_string(*column.options.max_length));
    }
    column.begins.push_back(column.begins.back() + static_cast<int64_t>(length));
    return;
  }
  if (static_cast<int64_t>(count) != column.options.numel()) {
    fail(column.name,
         "a list of " + std::to_string(count) + " numbers, expected " + std::to_string(column.options.numel()));
  }
}

void CellParser::add(const Cell& cell, Column& column) const {
  if (column.options.is_category()) {
    add_category(cell, column);
  } else if (column.options.is_list()) {
    add_list(cell, column);
  } else if (column.options.is_integer()) {
    const bool replaced = is_missing(cell) && !is_error(column.options);
    column.integers.push_back(replaced ? static_cast<int64_t>(std::get<double>(column.options.missing))
                                       : integer(cell, column.name));
  } else {
    const bool replaced = is_missing(cell) && !is_error(column.options);
    column.numbers.push_back(replaced ? kMissing : feature(cell, column));
  }
}

/// That each item of a sequence is a list if it has a shape, else a number.
void CellParser::require_items(const Cell& list, const Column& column) const {
  if (!column.options.is_sequence()) return;
  const bool are_lists = !column.options.shape.empty();
  for (const Cell& item : list.list) {
    if ((item.kind == Cell::Kind::kList) == are_lists) continue;
    fail(column.name, are_lists ? shown(text_of(item)) + " is not a list; with a shape, each item is one"
                                : "holds lists; say the shape of these");
  }
}

/// The numbers of a list, and of lists in it.
size_t CellParser::add_items(const Cell& list, Column& column) const {
  size_t count = 0;
  for (const Cell& item : list.list) {
    if (item.kind == Cell::Kind::kList) {
      count += add_items(item, column);
      continue;
    }
    if (column.options.is_integer()) {
      column.integers.push_back(integer(item, column.name));
    } else {
      column.numbers.push_back(number(item, column.name));
    }
    ++count;
  }
  return count;
}

void learn_column(Column& column, const at::Tensor& indices, const std::string& path) {
  const int64_t* rows = indices.const_data_ptr<int64_t>();
  if (column.options.is_category()) {
    std::map<std::string, int64_t> counts;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const int64_t place = column.integers[static_cast<size_t>(rows[i])];
      if (place != kMissingCategory) ++counts[column.seen[static_cast<size_t>(place)]];
    }
    if (counts.empty()) fail_without_value(column, path);
    if (is_statistic(column.options)) {
      column.missing_category =
          std::max_element(counts.begin(), counts.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; })  // the first of several
              ->first;
    }
    if (column.options.categories) return;
    if (!is_error(column.options)) counts.try_emplace(column.missing_category, 0);
    for (const auto& [name, unused] : counts) column.categories.push_back(name);
    return;
  }
  std::vector<double> values;
  double sum = 0;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const double value = column.numbers[static_cast<size_t>(rows[i])];
    if (std::isnan(value)) continue;
    values.push_back(value);
    sum += value;
  }
  if (values.empty()) fail_without_value(column, path);
  const bool mean = std::get<std::string>(column.options.missing) == "mean";
  column.missing_number = mean ? sum / static_cast<double>(values.size()) : median_of(std::move(values));
}

}  // namespace trainrun
