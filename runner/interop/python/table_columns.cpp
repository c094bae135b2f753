#include "runner/interop/python/table_columns.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "registry/data/tables/table_columns.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_number.h"
#include "runner/interop/python/expression.h"

namespace trainrun::python {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kReadRows = R"(def read_rows(path):
    """The rows of a table, all cells as texts."""
    return pd.read_csv(pathOPTIONS, dtype=str, na_filter=False).apply(lambda column: column.str.strip())
)";

constexpr const char* kTextsAsNumbers = R"(def as_numbers(column):
    """Numbers, NaN where one is missing."""
    return column.mask(column.isin(MISSING), "nan").astype(float)
)";

constexpr const char* kAsBooleans = R"(def as_booleans(column):
    """1 for true and 0 for false, NaN where it is missing."""
    return column.str.lower().isin(("true", "t", "yes", "y", "on", "1", "1.0")).astype(float).mask(column.isin(MISSING))
)";

constexpr const char* kAsDays = R"(def as_days(column, form="ISO8601"):
    """Dates as days since 1970, NaN where one is missing."""
    times = pd.to_datetime(column.mask(column.isin(MISSING)), format=form, utc=True)
    return (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
)";

constexpr const char* kOneHot = R"(def one_hot(column, categories):
    """A 0 or 1 for each category; what is none of them is all 0."""
    return (column.to_numpy(object)[:, None] == np.array(categories, dtype=object)).astype(float)
)";

constexpr const char* kCategoryNumbers = R"(def category_numbers(column, categories, unknown=-1):
    """The number of each value among the categories."""
    numbers = pd.Categorical(column, categories=categories).codes.astype(np.int64)
    return np.where(numbers < 0, unknown, numbers)
)";

constexpr const char* kAsKnown = R"(def as_known(column, categories):
    """Whole numbers as the categories have them: 1 for 1.0, or 1.0 for 1."""
    known = set(categories)

    def form(value):
        if value in known or not re.fullmatch(r"-?\d+(\.0+)?", value):
            return value
        other = value.partition(".")[0] if "." in value else value + ".0"
        return other if other in known else value

    return column.map(form)
)";

std::string python_list(const Names& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + quoted(item);
  return "[" + text + "]";
}

bool is_statistic_word(const std::string& word) {
  return word == "mean" || word == "median" || word == "most_frequent";
}

/// Whether trainrun may take one way of writing a category for another: "1" and "1.0".
bool may_be_numbers(const std::optional<Names>& categories) {
  if (!categories) return true;
  return std::ranges::any_of(*categories, [](const std::string& name) { return data_number_of(name).has_value(); });
}

Names names_in(const json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  return value.is_array() ? value.get<Names>() : Names();
}

}  // namespace

bool TextColumns::Column::learns_missing() const { return missing && is_statistic_word(*missing); }

/// "color_categories"; of a name that Python does not take, by its bytes: two columns never share one.
std::string TextColumns::Column::variable(const std::string& what) const {
  if (is_identifier(name)) return name + "_" + what;
  std::string text = "column";
  for (const unsigned char c : name) text += "_" + std::to_string(static_cast<int>(c));
  return text + "_" + what;
}

std::optional<TextColumns> TextColumns::of(const DataSource& source, const Component<DatasetKind>& set,
                                           bool is_regression) {
  const Value* columns = set.written.find("columns");
  const Value* na_values = set.written.find("na_values");
  TextColumns own;
  own.is_regression_ = is_regression;
  if (na_values && !na_values->is_null()) own.na_values_ = set.attributes.at("na_values").get<Names>();
  const bool is_auto = columns && columns->is_scalar() && !columns->is_null();
  std::vector<Problem> unwritten;
  if (columns && columns->is_map()) own.read_written(set, *columns, unwritten);
  const bool is_plain = std::ranges::all_of(
      own.said_, [](const Column& column) { return column.type == "number" || column.type == "integer"; });
  if (is_plain && !is_auto && !own.na_values_) return std::nullopt;
  for (const Problem& problem : unwritten) source.file.refuse(problem.place, problem.path, problem.message);
  const auto data = source.train.build({static_cast<uint64_t>(source.recipe.seed)});
  const json inferred = data->facts().inferred();
  if (is_auto) own.read_inferred(inferred.at("columns"));
  for (Column& column : own.said_) {
    if (column.one_hot && !column.categories) column.categories = inferred.at("one_hots").at(column.name).get<Names>();
  }
  own.choose(set, inferred);
  return own;
}

void TextColumns::read_written(const Component<DatasetKind>& set, const Value& columns,
                               std::vector<Problem>& unwritten) {
  for (const auto& entry : columns.entries()) {
    const std::string path = set.path + ".columns." + entry.key;
    Column column;
    column.name = entry.key;
    if (entry.value.is_scalar()) column.type = entry.value.text();
    for (const auto& option : entry.value.is_map() ? entry.value.entries() : std::vector<Value::Entry>()) {
      const Value& value = option.value;
      if (value.is_null()) continue;
      if (option.key == "type") {
        column.type = value.text();
      } else if (option.key == "categories") {
        column.categories.emplace();
        for (const Value& item : value.items()) column.categories->push_back(item.text());
      } else if (option.key == "one_hot") {
        column.one_hot = value.text() == "true";
      } else if (option.key == "allow_unknown") {
        column.allow_unknown = value.text() == "true";
      } else if (option.key == "format") {
        column.format = value.text();
      } else if (option.key == "missing") {
        if (value.text() != "error") column.missing = value.text();
      } else {
        unwritten.push_back({option.key_place, path, "'" + option.key + "' of a column is not written"});
      }
    }
    if (column.missing && !column.learns_missing()) {
      const bool is_number = column.type == "number" || column.type == "boolean" || column.type == "date";
      if (!is_number) column.missing = python::quoted(std::string(*column.missing));
    }
    if (column.format.find("%y") != std::string::npos) {
      unwritten.push_back(
          {entry.key_place, path, "dates with years of two digits are not written; write four in the file"});
    }
    said_.push_back(std::move(column));
  }
}

void TextColumns::read_inferred(const json& columns) {
  for (const json& one : columns) {
    Column column;
    column.name = one.at("name");
    column.type = one.at("type");
    column.one_hot = one.at("one_hot");
    column.allow_unknown = one.at("allow_unknown");
    column.format = one.value("format", std::string());
    if (one.contains("categories")) column.categories = one["categories"].get<Names>();
    const std::string missing = one.value("missing", std::string("error"));
    if (missing != "error") column.missing = is_statistic_word(missing) ? missing : python::quoted(missing);
    said_.push_back(std::move(column));
  }
}

/// The features in their order, and the label.
void TextColumns::choose(const Component<DatasetKind>& set, const json& inferred) {
  const Names labels = names_in(set.attributes.at("label"));
  Names names = names_in(set.attributes.at("features"));
  if (names.empty() && inferred.contains("features")) names = inferred["features"].get<Names>();
  if (names.empty()) {
    for (const Column& column : said_) {
      if (std::ranges::find(labels, column.name) == labels.end()) names.push_back(column.name);
    }
  }
  const auto column_of = [&](const std::string& name) {
    const auto found = std::ranges::find(said_, name, &Column::name);
    Column plain;
    plain.name = name;
    return found == said_.end() ? plain : *found;
  };
  for (const std::string& name : names) features_.push_back(column_of(name));
  label_ = column_of(labels.at(0));
}

void TextColumns::define(SourceFile& file, const std::string& reader_options) const {
  file.define("read_rows", replaced(kReadRows, "OPTIONS", reader_options));
  Names missing = na_values_.value_or(MissingValues::words());
  if (!na_values_) missing.insert(missing.begin(), "");
  std::string words = python_list(missing);
  file.constant("MISSING", "(" + words.substr(1, words.size() - 2) + (missing.size() == 1 ? ",)" : ")"),
                "texts that stand for a missing value");
  Names types;
  for (const Column& column : features_) types.push_back(column.type);
  types.push_back(label_.type);
  const auto has = [&](const std::string& type) { return std::ranges::find(types, type) != types.end(); };
  if (has("number")) file.define("as_numbers", kTextsAsNumbers);
  if (has("boolean")) file.define("as_booleans", kAsBooleans);
  if (has("date")) file.define("as_days", kAsDays);
  if (!has("category")) return;
  const auto needs = [&](auto of) { return std::ranges::any_of(features_, of) || of(label_); };
  if (needs([](const Column& column) { return column.is_category() && may_be_numbers(column.categories); })) {
    file.import("import re");
    file.define("as_known", kAsKnown);
  }
  if (needs([](const Column& column) { return column.one_hot; })) file.define("one_hot", kOneHot);
  if (needs([](const Column& column) { return column.is_category() && !column.one_hot; })) {
    file.define("category_numbers", kCategoryNumbers);
  }
}

/// The texts of a category or integer, with something in the place of those that are missing.
std::string TextColumns::filled(const Column& column, const std::string& rows) const {
  std::string texts = rows + "[" + quoted(column.name) + "]";
  if (!column.missing) return texts;
  const std::string value = column.learns_missing() ? column.variable("missing") : *column.missing;
  if (column.is_category() && !na_values_) return texts + ".replace(\"\", " + value + ")";
  return texts + ".mask(" + texts + ".isin(MISSING), " + value + ")";
}

std::string TextColumns::numbers(const Column& column, const std::string& rows) const {
  const std::string texts = rows + "[" + quoted(column.name) + "]";
  if (column.type == "boolean") return "as_booleans(" + texts + ")";
  if (column.type != "date") return "as_numbers(" + texts + ")";
  return "as_days(" + texts + (column.format.empty() ? "" : ", " + quoted(column.format)) + ")";
}

/// The texts as the categories have them.
std::string TextColumns::known(const Column& column, const std::string& rows) const {
  const std::string texts = filled(column, rows);
  return may_be_numbers(column.categories) ? "as_known(" + texts + ", " + column.variable("categories") + ")" : texts;
}

std::string TextColumns::learnt() const {
  std::string text;
  std::vector<Column> all = features_;
  all.push_back(label_);
  for (const Column& column : all) {
    const std::string texts = "train[" + quoted(column.name) + "]";
    if (column.learns_missing()) {
      const std::string of =
          column.is_category() ? texts + "[~" + texts + ".isin(" + (na_values_ ? "MISSING" : "(\"\",)") + ")].mode()[0]"
                               : numbers(column, "train") + "." + *column.missing + "()";
      text += "    " + column.variable("missing") + " = " + of + "\n";
    }
    if (!column.is_category()) continue;
    const bool adds = column.missing && !column.learns_missing();
    text += "    " + column.variable("categories") + " = " +
            (column.categories ? python_list(*column.categories)
             : adds            ? "sorted({*" + filled(column, "train") + ", " + *column.missing + "})"
                               : "sorted(set(" + filled(column, "train") + "))") +
            "\n";
  }
  return text;
}

std::string TextColumns::category_numbers(const Column& column, const std::string& rows) const {
  const std::string categories = column.variable("categories");
  return "category_numbers(" + known(column, rows) + ", " + categories +
         (column.allow_unknown ? ", unknown=len(" + categories + ")" : "") + ")";
}

std::string TextColumns::label_tensor() const {
  if (label_.is_category()) return "torch.tensor(" + category_numbers(label_, "rows") + ")";
  const std::string numbers_of = numbers(label_, "rows");
  if (is_regression_) return "torch.tensor(" + numbers_of + ".to_numpy()).unsqueeze(1)";
  if (label_.type == "boolean") return "torch.tensor(" + numbers_of + ".to_numpy(np.int64))";
  return "torch.tensor(rows[" + quoted(label_.name) + "].astype(np.int64).to_numpy())";
}

std::string TextColumns::tensors() const {
  std::string features;
  std::string fields;
  for (const Column& column : features_) {
    if (column.is_feature() && column.is_category()) {
      features += "            one_hot(" + known(column, "rows") + ", " + column.variable("categories") + "),\n";
    } else if (column.is_feature()) {
      const std::string fill = !column.missing           ? ""
                               : column.learns_missing() ? ".fillna(" + column.variable("missing") + ")"
                                                         : ".fillna(" + *column.missing + ")";
      features += "            " + numbers(column, "rows") + fill + ",\n";
    } else {
      const std::string numbers_of = column.is_category() ? category_numbers(column, "rows")
                                                          : filled(column, "rows") + ".astype(np.int64).to_numpy()";
      fields += "            " + quoted(column.name) + ": torch.tensor(" + numbers_of + "),\n";
    }
  }
  std::string text;
  if (!features.empty()) text = "        features = [\n" + features + "        ]\n";
  text += "        return {\n";
  if (!features.empty()) text += "            \"features\": torch.tensor(np.column_stack(features)),\n";
  return text + fields + "            \"label\": " + label_tensor() + ",\n        }\n";
}

std::set<std::string> TextColumns::wide() const {
  std::set<std::string> fields;
  if (std::ranges::any_of(features_, [](const Column& column) { return column.is_feature(); }))
    fields.insert("features");
  if (is_regression_) fields.insert("label");
  return fields;
}

}  // namespace trainrun::python
