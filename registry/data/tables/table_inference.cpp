#include "registry/data/tables/table_inference.h"

#include <algorithm>

#include "registry/data/tables/table_selection.h"

namespace trainrun {

using nlohmann::json;

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
  bool are_odd = false;                 // a few cells of others stand for missing values
  std::string na_values;                // what to write for these; "": they are too many to list

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
  const auto add = [&](const std::string& setting) { text += (text.empty() ? "write " : " and ") + setting; };
  if (faults.can_be_said) add(columns_text(table, faults.unreadable));
  if (!faults.na_values.empty()) add(faults.na_values);
  if (!faults.are_odd) return text;
  return text +
         (faults.na_values.empty() ? (text.empty() ? "" : "; ") + std::string("mend the odd cells in the file")
                                   : ", so that the odd cells are missing values") +
         ", or list the columns by hand where they are categories";
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

namespace {

/// Of a column that is read as a category although nearly all its cells are numbers.
std::string odd_note(const TableOptions& options, const TableSource& source, const ColumnFacts& facts,
                     const std::string& name, bool is_label) {
  const std::string values = na_values_text({facts}, options);
  return source.place(facts.first_odd()) + ":" + name + ": is read as a category, since " + facts.odd_text() +
         ", are not " + facts.usual_text() +
         (values.empty()
              ? ""
              : "; if they stand for a missing value, write " + values + (is_label ? " and broken: skip" : ""));
}

}  // namespace

InferredTable infer_table(const TableOptions& options, const TableSource& source, const std::vector<size_t>& places,
                          const std::vector<std::string>& no_features) {
  InferredTable table;
  table.path = options.path;
  table.num_labels = options.labels().size();
  const std::vector<std::string> names = source.open()->names();
  const auto facts = look_at_columns(options, source, places, table.rows);
  if (table.rows == 0) throw DataError(options.path + ": has no rows below the names of its columns");
  Faults faults;
  std::vector<std::string> left_out;
  for (size_t i = 0; i < places.size(); ++i) {
    const bool is_label = i + table.num_labels >= places.size();
    const std::string& name = names[places[i]];
    std::string fault;
    const ColumnOptions found = is_label ? facts[i].label_options(options, fault) : facts[i].options(fault);
    const bool tells_apart = !is_label && std::ranges::find(no_features, name) != no_features.end();
    if (tells_apart && (!fault.empty() || found.is_feature())) {
      left_out.push_back(name);
      continue;
    }
    table.columns.push_back({name, found, facts[i].missing(), facts[i].distinct()});
    const bool is_odd = facts[i].has_odd() && facts[i].number_format().empty();
    if (fault.empty() && is_odd && found.is_category()) {
      table.notes.push_back(odd_note(options, source, facts[i], name, is_label));
    }
    if (fault.empty()) continue;
    const bool is_missing = is_label && fault.find("missing") != std::string::npos;
    faults.lines += (faults.lines.empty() ? "" : "\n") +
                    (is_missing ? source.place(facts[i].first_missing())
                     : is_odd   ? source.place(facts[i].first_odd())
                                : options.path) +
                    ":" + name + ": " + fault;
    if (is_odd && !is_label) {
      faults.are_odd = true;
    } else if (const std::string format = facts[i].number_format(); !format.empty()) {
      faults.formats.push_back(format);
    } else if (!is_label && (found.is_date() || found.is_list())) {
      faults.can_be_said = true;
    } else if (!is_label) {
      faults.unreadable.push_back(name);
    }
  }
  if (faults.are_odd) faults.na_values = na_values_text(facts, options);
  if (!faults.lines.empty()) {
    const std::string cure = cure_of(table, source, faults);
    throw DataError(faults.lines + (cure.empty() ? "" : "\n" + options.path + ": " + cure));
  }
  if (!left_out.empty()) table.notes.push_back(no_features_note(options.path, left_out));
  const ColumnOptions& label = table.columns.back().options;
  if (label.type == "integer") table.num_classes = static_cast<int64_t>(facts.back().most()) + 1;
  return table;
}

std::map<std::string, std::vector<std::string>> one_hots_in(const TableOptions& options, const TableSource& source,
                                                            const std::vector<std::string>& names) {
  const std::vector<std::string> all = source.open()->names();
  std::vector<size_t> places;
  for (const std::string& name : names) {
    const auto found = std::find(all.begin(), all.end(), name);
    if (found == all.end()) {
      throw DataError(source.place(1) + ":" + name + ": there is no such column" + suggestion(name, all));
    }
    places.push_back(static_cast<size_t>(found - all.begin()));
  }
  int64_t rows = 0;
  const auto facts = look_at_columns(options, source, places, rows);
  std::map<std::string, std::vector<std::string>> categories;
  for (size_t i = 0; i < names.size(); ++i) {
    if (facts[i].distinct() >= static_cast<int64_t>(ColumnFacts::kMostDistinct)) {
      throw DataError(options.path + ":" + names[i] + ": one_hot is for categories, but there are " +
                      std::to_string(ColumnFacts::kMostDistinct) + " different values or more");
    }
    categories[names[i]] = facts[i].names(options.column(names[i]));
    if (categories[names[i]].empty()) throw DataError(options.path + ":" + names[i] + ": has no value in any row");
  }
  return categories;
}

TableOptions with_one_hots(TableOptions options, const std::map<std::string, std::vector<std::string>>& categories) {
  for (auto& [name, written] : std::get<TableOptions::Columns>(options.columns).entries) {
    if (categories.contains(name)) std::get<ColumnOptions>(written).categories = categories.at(name);
  }
  return options;
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
