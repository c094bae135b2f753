#include "registry/data/tables/column_facts.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "registry/data/tables/row_reader.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

constexpr int64_t kAlwaysFew = 20;   // so many different values are categories, however short the table
constexpr int64_t kNeverFew = 1000;  // more are not
constexpr const char* kNoCategory = "(missing)";
constexpr size_t kMostOddTexts = 10;  // that can be listed

ColumnOptions of_type(const std::string& type) {
  ColumnOptions options;
  options.type = type;
  return options;
}

}  // namespace

void ColumnFacts::add(const Cell& cell, const MissingValues& missing, int64_t row) {
  ++rows_;
  if (missing.contains(cell, true)) ++empty_;
  const bool is_missing = missing.contains(cell, false);
  if (is_missing) ++missing_;
  if (is_missing && first_missing_ == 0) first_missing_ = row;
  if (empty_ == 1 && first_empty_ == 0) first_empty_ = row;
  if (cell.kind == Cell::Kind::kList || cell.kind == Cell::Kind::kObject) {
    const auto size = static_cast<int64_t>(cell.list.size());
    are_of_one_size_ = are_of_one_size_ && (lists_ == 0 || size == list_size_);
    list_size_ = std::max(list_size_, size);
    ++lists_;
    return;
  }
  if (distinct_.size() < kMostDistinct && !missing.contains(cell, true)) distinct_.insert(text_of(cell));
  if (is_missing) {
    if (cell.kind == Cell::Kind::kText) missing_texts_.insert(text_of(cell));
    return;
  }
  if (parse_boolean(cell)) ++booleans_;
  if (const auto number = parse_cell_number(cell); number && std::isfinite(*number)) {
    ++numbers_;
    if (*number == std::floor(*number)) ++integers_;
    least_ = std::min(least_, *number);
    most_ = std::max(most_, *number);
  } else if (cell.kind == Cell::Kind::kText) {
    add_text(cell, row);
  }
}

/// Counts a text that is not a number as C writes it.
void ColumnFacts::add_text(const Cell& cell, int64_t row) {
  const std::string_view text = trimmed(cell.text);
  bool is_date = false;
  for (size_t i = 0; i < dates_.size(); ++i) {
    if (!is_date_of(text, date_formats()[i])) continue;
    ++dates_[i];
    is_date = true;
  }
  if (is_date) ++dated_;
  const bool is_known = is_date || parse_boolean(cell).has_value();
  const bool is_marked = cell.format ? add_marks(cell) : add_commas(text);
  if (is_known || is_marked) return;
  if (odd_++ == 0) {
    first_odd_ = row;
    first_odd_text_ = text;
  }
  if (odd_texts_.size() <= kMostOddTexts) odd_texts_.emplace(text);
}

/// Counts `text`, which is not a number, if it is one with commas, and says whether it is.
bool ColumnFacts::add_commas(std::string_view text) {
  const auto is_number = [&](char decimal, char thousands) {
    const NumberFormat format{decimal, thousands};
    Cell cell;
    cell.kind = Cell::Kind::kText;
    cell.text = text;
    cell.format = &format;
    return parse_cell_number(cell).has_value();
  };
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.find_first_of("eEnN") != std::string_view::npos) return false;
  const size_t end = std::min(text.find('.', comma), text.size());
  bool in_threes = comma > 0;
  for (size_t i = comma; in_threes && i < end; i += 4) in_threes = text[i] == ',' && i + 4 <= end;
  in_threes = in_threes && (end - comma) % 4 == 0 && is_number('.', ',');
  if (in_threes) ++grouped_;
  if (text.find(',', comma + 1) != std::string_view::npos || !is_number(',', '.')) return in_threes;
  ++decimal_commas_;
  if (text.find('.') < comma) ++dotted_;
  return true;
}

/// Counts a text that is a number but for points between its thousands, and says whether it is one.
bool ColumnFacts::add_marks(const Cell& cell) {
  if (cell.format->decimal != ',' || cell.format->thousands != '\0') return false;
  const NumberFormat format{',', '.'};
  Cell marked = cell;
  marked.format = &format;
  const bool is_number = parse_cell_number(marked).has_value();
  if (is_number) ++marked_;
  return is_number;
}

bool ColumnFacts::has_few_odd() const {
  constexpr int64_t kOneIn = 10;
  return odd_ > 0 && lists_ == 0 && odd_ * kOneIn <= rows_ - missing_;
}

bool ColumnFacts::has_odd() const {
  const int64_t usual = rows_ - missing_ - odd_;
  return has_few_odd() &&
         (numbers_ == usual || booleans_ == usual || std::find(dates_.begin(), dates_.end(), usual) != dates_.end());
}

std::string ColumnFacts::odd_count_text() const {
  return std::to_string(odd_) + " of " + std::to_string(rows_ - missing_) + " cells";
}

std::string ColumnFacts::odd_text() const {
  return odd_count_text() + (odd_ == 1 ? ", " : ", the first ") + shown(first_odd_text_);
}

ColumnOptions ColumnFacts::usual_options() const {
  const std::string usual = usual_text();
  ColumnOptions options = of_type(usual.substr(0, usual.size() - 1));  // "numbers": "number"
  options.missing = std::string("median");
  if (!options.is_date()) return options;
  const auto most = std::max_element(dates_.begin(), dates_.end());
  const std::string& format = date_formats()[static_cast<size_t>(most - dates_.begin())];
  if (!format.empty()) options.format = format;
  return options;
}

std::string ColumnFacts::date_counts() const {
  std::vector<std::string> counts;
  for (size_t i = 0; i < dates_.size(); ++i) {
    const std::string& format = date_formats()[i];
    if (dates_[i] > 0) counts.push_back(std::to_string(dates_[i]) + " as " + (format.empty() ? "ISO 8601" : format));
  }
  return join(counts);
}

std::string ColumnFacts::usual_text() const {
  const int64_t usual = rows_ - missing_ - odd_;
  return numbers_ == usual ? "numbers" : booleans_ == usual ? "booleans" : "dates";
}

bool ColumnFacts::add_na_values(std::set<std::string>& texts) const {
  if (has_odd() || numbers_ > 0) texts.insert(missing_texts_.begin(), missing_texts_.end());
  if (!has_odd()) return true;
  texts.insert(odd_texts_.begin(), odd_texts_.end());
  return odd_texts_.size() <= kMostOddTexts;
}

std::string ColumnFacts::number_format() const {
  const int64_t others = rows_ - missing_ - numbers_ - odd();
  if (others == 0) return "";
  if (grouped_ == others) return "thousands: ','";
  if (marked_ == others) return "thousands: '.'";
  if (decimal_commas_ != others) return "";
  return dotted_ > 0 ? "decimal: ',' and thousands: '.'" : "decimal: ','";
}

/// Numbers by their size, other texts by their characters.
std::vector<std::string> ColumnFacts::sorted_categories() const {
  std::vector<std::string> names(distinct_.begin(), distinct_.end());
  const auto number = [](const std::string& text) {
    Cell cell;
    cell.kind = Cell::Kind::kText;
    cell.text = text;
    return parse_cell_number(cell).value_or(0);
  };
  const bool by_number = numbers_ == rows_ - missing_ && missing_ == empty_;
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return by_number && number(a) != number(b) ? number(a) < number(b) : a < b;
  });
  return names;
}

std::vector<std::string> ColumnFacts::names(const ColumnOptions& options) const {
  std::set<std::string> names(distinct_.begin(), distinct_.end());
  const auto* replacement = std::get_if<std::string>(&options.missing);
  if (const auto* number = std::get_if<double>(&options.missing)) {
    names.insert(detail::number_text(*number));
  } else if (!is_error(options) && !is_statistic(options)) {
    names.insert(*replacement);
  }
  return {names.begin(), names.end()};
}

bool ColumnFacts::has_few_values() const {
  return distinct() <= kAlwaysFew || (distinct() <= kNeverFew && 2 * distinct() < rows_);
}

ColumnOptions ColumnFacts::options(std::string& fault) const {
  fault.clear();
  const int64_t values = rows_ - missing_;
  ColumnOptions options;
  options.missing = std::string("median");
  if (lists_ > 0) {
    fault = are_of_one_size_ ? "holds lists, whose shape must be said"
                             : "holds lists of different lengths, whose max_length must be said";
    options.missing = std::string("error");
    if (are_of_one_size_) {
      options.shape = {list_size_};
    } else {
      options.max_length = list_size_;
    }
  } else if (values == 0) {
    fault = "has no value in any row";
  } else if (!number_format().empty()) {
    fault = "holds numbers with commas";
  } else if (booleans_ == values && (numbers_ < values || (least_ == 0 && most_ == 1))) {
    options.type = "boolean";
  } else if (numbers_ == values) {
    options.type = "number";
  } else if (std::find(dates_.begin(), dates_.end(), values) != dates_.end()) {
    options.type = "date";
    const auto fits = std::find(dates_.begin(), dates_.end(), values);
    const std::string& format = date_formats()[static_cast<size_t>(fits - dates_.begin())];
    if (!format.empty()) options.format = format;
    const auto second = std::find(fits + 1, dates_.end(), values);
    if (second != dates_.end()) {
      fault = "holds dates that may be month/day/year ('" + format + "') or day/month/year ('" +
              date_formats()[static_cast<size_t>(second - dates_.begin())] + "')";
    }
  } else if (dated_ == values) {
    fault = "holds dates written in different ways: " + date_counts();
  } else if (has_odd() && distinct() > kAlwaysFew) {
    fault = "holds " + usual_text() + " but for " + odd_text();
  } else if (has_few_values()) {
    options.type = "category";
    options.one_hot = true;
    options.allow_unknown = true;
    options.categories = sorted_categories();
    options.missing = std::string(kNoCategory);
    if (empty_ > 0) options.categories->emplace_back(kNoCategory);
  } else {
    fault = "holds text: " + std::to_string(distinct()) + (distinct_.size() == kMostDistinct ? " or more" : "") +
            " different values in " + std::to_string(rows_) + " rows";
  }
  return options;
}

ColumnOptions ColumnFacts::label_options(const TableOptions& table, std::string& fault) const {
  fault.clear();
  const bool is_classification = table.is_classification();
  const int64_t values = rows_ - missing_;
  const bool is_boolean =
      booleans_ == values && (table.has_several_labels() ? numbers_ < values : is_classification && numbers_ == 0);
  const bool is_plain = numbers_ == values || booleans_ == values || !is_classification;
  if (const int64_t without = is_plain ? missing_ : empty_; without > 0 && !table.skips()) {
    fault = "the label is missing " + (without == 1 ? "" : "in " + std::to_string(without) + " rows, the first ") +
            "here, and nothing can be learnt from that; write broken: skip to leave such rows out";
  } else if (!number_format().empty() && (!is_classification || numbers_ > 0)) {
    fault = "the label holds numbers with commas";
  } else if (is_boolean) {
    return of_type("boolean");
  } else if (table.has_several_labels()) {
    if (numbers_ != values) fault = "one of several labels is a number or a boolean";
  } else if (!is_classification && has_odd() && usual_text() == "numbers") {
    if (!table.skips()) {
      fault = "the label of a regression is a number, and " + odd_text() +
              " is not; write broken: skip to leave such rows out";
    }
  } else if (!is_classification) {
    if (numbers_ != values) fault = "the label of a regression is a number; for classes write task: classification";
  } else if (numbers_ == values && integers_ < values && !has_few_values()) {
    fault = "the label holds " + std::to_string(distinct()) +
            " different numbers; to predict numbers write task: regression";
  } else if (integers_ == values && least_ == 0 && most_ < static_cast<double>(kMostDistinct)) {
    return of_type(booleans_ == values ? "boolean" : "integer");
  } else if (distinct_.size() >= kMostDistinct || (distinct() > kAlwaysFew && distinct() == rows_)) {
    fault = "the label is different in every row; to predict numbers write task: regression";
  } else {
    ColumnOptions options = of_type("category");
    options.categories = sorted_categories();
    return options;
  }
  return of_type("number");
}

std::vector<ColumnFacts> look_at_columns(const TableOptions& options, const TableSource& source,
                                         const std::vector<size_t>& places, int64_t& rows) {
  const MissingValues missing(options.na_values);
  std::vector<ColumnFacts> facts(places.size());
  RowReader reader(source.open(), options);
  reader.read_only(places);
  std::vector<Cell> row;
  for (rows = 0; reader.next(row); ++rows) {
    require_room(rows, places.size(), options.path);
    for (size_t i = 0; i < places.size(); ++i) facts[i].add(row[places[i]], missing, reader.row_number());
  }
  return facts;
}

std::vector<std::string> na_values_of(const std::vector<ColumnFacts>& facts, const TableOptions& options) {
  std::set<std::string> texts = {""};
  if (options.na_values) texts = {options.na_values->begin(), options.na_values->end()};
  bool are_few = true;
  bool any = false;
  for (const ColumnFacts& one : facts) {
    are_few = one.add_na_values(texts) && are_few;
    any = any || one.has_odd();
  }
  if (!are_few || !any) return {};
  return {texts.begin(), texts.end()};
}

std::string na_values_text(const std::vector<ColumnFacts>& facts, const TableOptions& options) {
  const std::vector<std::string> texts = na_values_of(facts, options);
  return texts.empty() ? "" : na_values_text(texts);
}

std::string na_values_text(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(yaml_text(text));
  return "na_values: [" + join(quoted) + "]";
}

std::string yaml_text(const std::string& text) {
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const bool has_letter = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_');
  Cell cell;
  cell.kind = Cell::Kind::kText;
  cell.text = text;
  const bool is_word = parse_boolean(cell) || text == "null" || text == "Null" || text == "NULL" || text == "nan";
  if (has_letter && !is_word && std::all_of(text.begin(), text.end(), is_plain)) return text;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };
  if (std::any_of(text.begin(), text.end(), is_control)) {  // in single quotes, the end of a line would become a space
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace trainrun
