#include "registry/datasets/table_inference.h"

#include <algorithm>
#include <cmath>

#include "registry/datasets/dates.h"
#include "registry/text_view.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr int64_t kAlwaysFew = 20;   // so many different values are categories, however short the table
constexpr int64_t kNeverFew = 1000;  // more are not
constexpr const char* kNoCategory = "(missing)";

ColumnOptions of_type(const std::string& type) {
  ColumnOptions options;
  options.type = type;
  return options;
}

}  // namespace

void ColumnFacts::add(const Cell& cell, const MissingValues& missing) {
  ++rows_;
  if (missing.contains(cell, true)) ++empty_;
  const bool is_missing = missing.contains(cell, false);
  if (is_missing) ++missing_;
  if (cell.kind == Cell::Kind::kList) {
    ++lists_;
    return;
  }
  if (distinct_.size() < kMostDistinct && !missing.contains(cell, true)) distinct_.insert(text_of(cell));
  if (is_missing) return;
  if (parse_boolean(cell)) ++booleans_;
  if (const auto number = parse_cell_number(cell); number && std::isfinite(*number)) {
    ++numbers_;
    if (*number == std::floor(*number)) ++integers_;
    least_ = std::min(least_, *number);
    most_ = std::max(most_, *number);
  } else if (cell.kind == Cell::Kind::kText) {
    const std::string_view text = trimmed(cell.text);
    for (size_t i = 0; i < dates_.size(); ++i) {
      if (parse_date(text, date_formats()[i])) ++dates_[i];
    }
  }
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

bool ColumnFacts::has_few_values() const {
  return distinct() <= kAlwaysFew || (distinct() <= kNeverFew && 2 * distinct() < rows_);
}

ColumnOptions ColumnFacts::options(std::string& fault) const {
  fault.clear();
  const int64_t values = rows_ - missing_;
  ColumnOptions options;
  options.missing = std::string("median");
  if (lists_ > 0) {
    fault = "holds lists, whose shape must be said: {shape: [3]}";
  } else if (values == 0) {
    fault = "has no value in any row";
  } else if (booleans_ == values && (numbers_ < values || (least_ == 0 && most_ == 1))) {
    options.type = "boolean";
  } else if (numbers_ == values) {
    options.type = "number";
  } else if (std::find(dates_.begin(), dates_.end(), values) != dates_.end()) {
    options.type = "date";
    const auto fits = std::find(dates_.begin(), dates_.end(), values);
    const std::string& format = date_formats()[static_cast<size_t>(fits - dates_.begin())];
    if (!format.empty()) options.format = format;
    if (std::count(dates_.begin(), dates_.end(), values) > 1) {
      fault =
          "holds dates that may be month/day/year or day/month/year: {type: date, format: '%m/%d/%Y'} or '%d/%m/%Y'";
    }
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

ColumnOptions ColumnFacts::label_options(bool is_classification, std::string& fault) const {
  fault.clear();
  const int64_t values = rows_ - missing_;
  if (missing_ > 0 && (numbers_ == values || booleans_ == values || !is_classification)) {
    fault = "the label is missing in " + std::to_string(missing_) + " rows, which nothing can be learned from";
  } else if (empty_ > 0) {
    fault = "the label is missing in " + std::to_string(empty_) + " rows, which nothing can be learned from";
  } else if (!is_classification) {
    if (numbers_ != values) fault = "the label of a regression is a number; for classes write task: classification";
  } else if (numbers_ == values && integers_ < values && !has_few_values()) {
    fault = "the label holds " + std::to_string(distinct()) +
            " different numbers; to predict numbers write task: regression";
  } else if (integers_ == values && least_ == 0 && most_ < static_cast<double>(kMostDistinct)) {
    return of_type(booleans_ == values ? "boolean" : "integer");
  } else if (booleans_ == values && numbers_ == 0) {
    return of_type("boolean");
  } else if (distinct_.size() >= kMostDistinct || (distinct() > kAlwaysFew && distinct() == rows_)) {
    fault = "the label is different in every row; to predict numbers write task: regression";
  } else {
    ColumnOptions options = of_type("category");
    options.categories = sorted_categories();
    return options;
  }
  return of_type("number");
}

std::vector<ColumnFacts> look_at_columns(const TableSource& source, const std::vector<size_t>& places,
                                         const MissingValues& missing, const std::string& path, int64_t& rows) {
  std::vector<ColumnFacts> facts(places.size());
  const auto reader = source.open();
  reader->read_only(places);
  std::vector<Cell> row;
  for (rows = 0; reader->next(row); ++rows) {
    require_room(rows, places.size(), path);
    for (size_t i = 0; i < places.size(); ++i) facts[i].add(row[places[i]], missing);
  }
  return facts;
}

namespace {

/// "features: [a, b]": all columns that can be read.
std::string features_text(const InferredTable& table, const std::vector<std::string>& faulty) {
  std::string text;
  for (size_t i = 0; i + 1 < table.columns.size(); ++i) {
    const std::string& name = table.columns[i].name;
    if (std::find(faulty.begin(), faulty.end(), name) != faulty.end()) continue;
    text += (text.empty() ? "" : ", ") + yaml_text(name);
  }
  return "features: [" + text + "]";
}

}  // namespace

InferredTable infer_table(const TableOptions& options, const TableSource& source, const std::vector<size_t>& places) {
  InferredTable table;
  table.path = options.path;
  const std::vector<std::string> names = source.open()->names();
  const auto facts = look_at_columns(source, places, MissingValues(options.na_values), options.path, table.rows);
  if (table.rows == 0) throw DataError(options.path + ": has no rows below the names of its columns");
  std::vector<std::string> faulty;
  std::string lines;
  for (size_t i = 0; i < places.size(); ++i) {
    const bool is_label = i + 1 == places.size();
    std::string fault;
    const ColumnOptions found =
        is_label ? facts[i].label_options(options.is_classification(), fault) : facts[i].options(fault);
    table.columns.push_back({names[places[i]], found, facts[i].missing(), facts[i].distinct()});
    if (fault.empty()) continue;
    if (!is_label) faulty.push_back(names[places[i]]);
    lines += (lines.empty() ? "" : "\n") + options.path + ":" + names[places[i]] + ": " + fault;
  }
  if (!lines.empty()) {
    if (!faulty.empty()) {
      lines += "\n" + options.path + ": to leave out what cannot be read write " + features_text(table, faulty);
    }
    throw DataError(lines);
  }
  const ColumnOptions& label = table.columns.back().options;
  if (label.type == "integer") table.num_classes = static_cast<int64_t>(facts.back().most()) + 1;
  return table;
}

TableOptions::Columns InferredTable::listed() const {
  TableOptions::Columns result;
  for (const Entry& entry : columns) {
    const bool is_plain = entry.options.type == "number" || entry.options.type == "integer";
    if (&entry == &columns.back() && is_plain) continue;  // the task says how it is read
    result.entries.emplace_back(entry.name, entry.options);
  }
  return result;
}

json InferredTable::to_json() const {
  json list = json::array();
  for (const Entry& entry : columns) {
    const ColumnOptions& options = entry.options;
    json one = {{"name", entry.name},
                {"key", yaml_text(entry.name)},
                {"type", options.type},
                {"one_hot", options.one_hot},
                {"allow_unknown", options.allow_unknown},
                {"missing_values", entry.missing},
                {"distinct_values", entry.distinct},
                {"recipe", recipe_text(options)}};
    if (const auto* word = std::get_if<std::string>(&options.missing)) one["missing"] = *word;
    if (options.categories) one["categories"] = *options.categories;
    if (options.format) one["format"] = *options.format;
    list.push_back(std::move(one));
  }
  return {
      {"path", path}, {"rows", rows}, {"columns", list}, {"num_classes", num_classes ? json(*num_classes) : json()}};
}

InferredTable InferredTable::from_json(const json& json) {
  InferredTable table;
  table.path = json.at("path");
  table.rows = json.at("rows");
  if (!json.at("num_classes").is_null()) table.num_classes = json["num_classes"].get<int64_t>();
  for (const auto& one : json.at("columns")) {
    Entry entry;
    entry.name = one.at("name");
    entry.options.type = one.at("type");
    entry.options.one_hot = one.at("one_hot");
    entry.options.allow_unknown = one.at("allow_unknown");
    entry.missing = one.at("missing_values");
    entry.distinct = one.at("distinct_values");
    if (one.contains("missing")) entry.options.missing = one["missing"].get<std::string>();
    if (one.contains("categories")) entry.options.categories = one["categories"].get<std::vector<std::string>>();
    if (one.contains("format")) entry.options.format = one["format"].get<std::string>();
    table.columns.push_back(std::move(entry));
  }
  return table;
}

std::string yaml_text(const std::string& text) {
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const bool has_letter = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_');
  Cell cell;
  cell.kind = Cell::Kind::kText;
  cell.text = text;
  const bool is_word = parse_boolean(cell) || text == "null" || text == "Null" || text == "NULL" || text == "nan";
  if (has_letter && !is_word && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

std::string recipe_text(const ColumnOptions& options) {
  std::vector<std::string> parts;
  if (options.format) parts.push_back("format: " + yaml_text(*options.format));
  if (options.categories) {
    std::vector<std::string> names;
    for (const std::string& name : *options.categories) names.push_back(yaml_text(name));
    parts.push_back("categories: [" + join(names) + "]");
  }
  if (options.one_hot) parts.emplace_back("one_hot: true");
  if (options.allow_unknown) parts.emplace_back("allow_unknown: true");
  if (const auto* word = std::get_if<std::string>(&options.missing)) {
    if (*word != "error") parts.push_back("missing: " + yaml_text(*word));
  } else {
    parts.push_back("missing: " + detail::number_text(std::get<double>(options.missing)));
  }
  if (!options.shape.empty()) parts.emplace_back("shape: " + json(options.shape).dump());
  if (parts.empty()) return options.type;
  return "{" + (options.type == "number" ? "" : "type: " + options.type + ", ") + join(parts) + "}";
}

}  // namespace trainrun
