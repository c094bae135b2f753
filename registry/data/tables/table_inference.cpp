#include "registry/data/tables/table_inference.h"

#include <algorithm>
#include <cmath>

#include "registry/data/tables/dates.h"
#include "registry/language/text_view.h"

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

void ColumnFacts::add(const Cell& cell, const MissingValues& missing, int64_t row) {
  ++rows_;
  if (missing.contains(cell, true)) ++empty_;
  const bool is_missing = missing.contains(cell, false);
  if (is_missing) ++missing_;
  if (is_missing && first_missing_ == 0) first_missing_ = row;
  if (empty_ == 1 && first_empty_ == 0) first_empty_ = row;
  if (cell.kind == Cell::Kind::kList) {
    const auto size = static_cast<int64_t>(cell.list.size());
    are_of_one_size_ = are_of_one_size_ && (lists_ == 0 || size == list_size_);
    list_size_ = std::max(list_size_, size);
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
    if (cell.format) {
      add_marks(cell);
    } else {
      add_commas(text);
    }
  }
}

/// Counts `text`, which is not a number, if it is one with commas.
void ColumnFacts::add_commas(std::string_view text) {
  const auto is_number = [&](char decimal, char thousands) {
    const NumberFormat format{decimal, thousands};
    Cell cell;
    cell.kind = Cell::Kind::kText;
    cell.text = text;
    cell.format = &format;
    return parse_cell_number(cell).has_value();
  };
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.find_first_of("eEnN") != std::string_view::npos) return;
  const size_t end = std::min(text.find('.', comma), text.size());
  bool in_threes = comma > 0;
  for (size_t i = comma; in_threes && i < end; i += 4) in_threes = text[i] == ',' && i + 4 <= end;
  in_threes = in_threes && (end - comma) % 4 == 0 && is_number('.', ',');
  if (in_threes) ++grouped_;
  if (text.find(',', comma + 1) != std::string_view::npos || !is_number(',', '.')) return;
  ++decimal_commas_;
  if (text.find('.') < comma) ++dotted_;
}

/// Counts a text that is a number but for points between its thousands.
void ColumnFacts::add_marks(const Cell& cell) {
  if (cell.format->decimal != ',' || cell.format->thousands != '\0') return;
  const NumberFormat format{',', '.'};
  Cell marked = cell;
  marked.format = &format;
  if (parse_cell_number(marked)) ++marked_;
}

std::string ColumnFacts::number_format() const {
  const int64_t others = rows_ - missing_ - numbers_;
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
    if (std::count(dates_.begin(), dates_.end(), values) > 1) {
      fault = "holds dates that may be month/day/year ('%m/%d/%Y') or day/month/year ('%d/%m/%Y')";
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

ColumnOptions ColumnFacts::label_options(const TableOptions& table, std::string& fault) const {
  fault.clear();
  const bool is_classification = table.is_classification();
  const int64_t values = rows_ - missing_;
  const bool is_boolean =
      booleans_ == values && (table.has_several_labels() ? numbers_ < values : is_classification && numbers_ == 0);
  const bool is_plain = numbers_ == values || booleans_ == values || !is_classification;
  if (const int64_t without = is_plain ? missing_ : empty_; without > 0) {
    fault = "the label is missing " + (without == 1 ? "" : "in " + std::to_string(without) + " rows, the first ") +
            "here, and nothing can be learnt from that; leave such rows out of the file";
  } else if (!number_format().empty() && (!is_classification || numbers_ > 0)) {
    fault = "the label holds numbers with commas";
  } else if (is_boolean) {
    return of_type("boolean");
  } else if (table.has_several_labels()) {
    if (numbers_ != values) fault = "one of several labels is a number or a boolean";
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

std::vector<ColumnFacts> look_at_columns(const TableSource& source, const std::vector<size_t>& places,
                                         const MissingValues& missing, const std::string& path, int64_t& rows) {
  std::vector<ColumnFacts> facts(places.size());
  const auto reader = source.open();
  reader->read_only(places);
  std::vector<Cell> row;
  for (rows = 0; reader->next(row); ++rows) {
    require_room(rows, places.size(), path);
    for (size_t i = 0; i < places.size(); ++i) facts[i].add(row[places[i]], missing, reader->row_number());
  }
  return facts;
}

std::string features_text(const std::vector<std::string>& names, const std::vector<std::string>& faulty) {
  std::string text;
  for (const std::string& name : names) {
    if (std::find(faulty.begin(), faulty.end(), name) != faulty.end()) continue;
    text += (text.empty() ? "" : ", ") + yaml_text(name);
  }
  return text.empty() ? "" : "features: [" + text + "]";
}

namespace {

/// What cannot be told from the values of some columns.
struct Faults {
  std::string lines;
  std::vector<std::string> unreadable;  // features that can only be left out
  std::vector<std::string> formats;     // what to write of numbers with commas
  bool can_be_said = false;             // a recipe can say the type of others

  /// The one that serves most: where commas are decimal anywhere, they are everywhere.
  std::string format() const {
    return *std::max_element(formats.begin(), formats.end(), [](const std::string& a, const std::string& b) {
      const auto worth = [](const std::string& format) {
        return std::pair(format.starts_with("decimal"), format.size());
      };
      return worth(a) < worth(b);
    });
  }
};

/// "columns: {a: number, b: {type: date, …}}": all that can be read, as `auto` would read them.
std::string columns_text(const InferredTable& table, const std::vector<std::string>& unreadable) {
  std::string text;
  for (const InferredTable::Entry& entry : table.columns) {
    if (std::find(unreadable.begin(), unreadable.end(), entry.name) != unreadable.end()) continue;
    if (table.leaves_to_task(entry)) continue;
    text += (text.empty() ? "" : ", ") + yaml_text(entry.name) + ": " + recipe_text(entry.options);
  }
  return "columns: {" + text + "}";
}

/// What to write into the recipe; "" where that does not help.
std::string cure_of(const InferredTable& table, const TableSource& source, const Faults& faults) {
  if (!faults.formats.empty()) return source.format_advice(faults.format());
  std::vector<std::string> names;
  for (size_t i = 0; i + table.num_labels < table.columns.size(); ++i) names.push_back(table.columns[i].name);
  const std::string features = faults.unreadable.empty() ? "" : features_text(names, faults.unreadable);
  if (!faults.unreadable.empty() && features.empty()) {
    return "no column but the label can be read as numbers, dates or categories; text is read by the data set "
           "TextClassification";
  }
  std::string text = features.empty() ? "" : "to leave out what cannot be read write " + features;
  if (faults.can_be_said) text += (text.empty() ? "write " : " and ") + columns_text(table, faults.unreadable);
  return text;
}

}  // namespace

std::string column_cure(const TableOptions& options, const ColumnOptions& now, const ColumnFacts& facts,
                        bool is_label) {
  std::string fault;
  if (is_label) {
    const ColumnOptions found = facts.label_options(options, fault);
    const bool is_number = facts.mostly_numbers() && !facts.all_integers();
    if (!fault.empty() || is_number || (options.num_classes && facts.all_integers())) return "";
    return found.type != now.type && (found.is_category() || found.is_boolean()) ? found.type : "";
  }
  ColumnOptions found = facts.options(fault);
  if (!fault.empty()) return "";
  found.categories.reset();
  found.one_hot = found.allow_unknown = false;
  if (found.is_category() && (facts.mostly_numbers() || now.is_date())) return "";  // mistakes, more likely
  if (found.is_category() || now.is_category()) {
    found = ColumnOptions();
    found.type = "category";
    found.missing = std::string("most_frequent");
  } else if (now.is_integer() && facts.all_integers()) {
    found.type = "integer";
    found.missing = 0.0;
  }
  if (found.type == now.type && !facts.has_missing()) return "";
  if (!facts.has_missing()) found.missing = std::string("error");
  return recipe_text(found);
}

InferredTable infer_table(const TableOptions& options, const TableSource& source, const std::vector<size_t>& places) {
  InferredTable table;
  table.path = options.path;
  table.num_labels = options.labels().size();
  const std::vector<std::string> names = source.open()->names();
  const auto facts = look_at_columns(source, places, MissingValues(options.na_values), options.path, table.rows);
  if (table.rows == 0) throw DataError(options.path + ": has no rows below the names of its columns");
  Faults faults;
  for (size_t i = 0; i < places.size(); ++i) {
    const bool is_label = i + table.num_labels >= places.size();
    const std::string& name = names[places[i]];
    std::string fault;
    const ColumnOptions found = is_label ? facts[i].label_options(options, fault) : facts[i].options(fault);
    table.columns.push_back({name, found, facts[i].missing(), facts[i].distinct()});
    if (fault.empty()) continue;
    const bool is_at_row = is_label && fault.find("missing") != std::string::npos;
    faults.lines += (faults.lines.empty() ? "" : "\n") +
                    (is_at_row ? source.place(facts[i].first_missing()) : options.path) + ":" + name + ": " + fault;
    if (const std::string format = facts[i].number_format(); !format.empty()) {
      faults.formats.push_back(format);
    } else if (!is_label && (found.is_date() || found.is_list())) {
      faults.can_be_said = true;
    } else if (!is_label) {
      faults.unreadable.push_back(name);
    }
  }
  if (!faults.lines.empty()) {
    const std::string cure = cure_of(table, source, faults);
    throw DataError(faults.lines + (cure.empty() ? "" : "\n" + options.path + ": " + cure));
  }
  const ColumnOptions& label = table.columns.back().options;
  if (label.type == "integer") table.num_classes = static_cast<int64_t>(facts.back().most()) + 1;
  return table;
}

bool InferredTable::leaves_to_task(const Entry& entry) const {
  const bool is_plain = entry.options.type == "number" || entry.options.type == "integer";
  return is_plain && static_cast<size_t>(&entry - columns.data()) + num_labels >= columns.size();
}

TableOptions::Columns InferredTable::listed() const {
  TableOptions::Columns result;
  for (const Entry& entry : columns) {
    if (leaves_to_task(entry)) continue;
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
  return {{"path", path},
          {"rows", rows},
          {"columns", list},
          {"num_labels", num_labels},
          {"num_classes", num_classes ? json(*num_classes) : json()}};
}

InferredTable InferredTable::from_json(const json& json) {
  InferredTable table;
  table.path = json.at("path");
  table.rows = json.at("rows");
  table.num_labels = json.value("num_labels", size_t{1});  // which older checkpoints do not say
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
  if (options.is_sequence()) parts.push_back("max_length: " + std::to_string(*options.max_length));
  if (parts.empty()) return options.type;
  return "{" + (options.type == "number" ? "" : "type: " + options.type + ", ") + join(parts) + "}";
}

}  // namespace trainrun
