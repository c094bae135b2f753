#include "runner/init/table_target.h"

#include <algorithm>
#include <array>
#include <set>

#include "registry/data/tables/value_names.h"
#include "registry/language/error.h"
#include "registry/language/registry.h"
#include "registry/language/text_forms.h"
#include "runner/base/text.h"

namespace trainrun {
namespace {

constexpr std::array kUsualNames = {"label", "labels", "target", "class", "y", "outcome", "response"};

bool is_named_as_id(const std::string& name) {
  const std::string lower = lower_ascii(name);
  return lower.empty() || lower == "id" || lower == "index" || lower == "uuid" || lower == "guid" || lower == "row" ||
         lower.starts_with("unnamed:") || lower.ends_with("_id") || lower.ends_with(" id") || name.ends_with("Id") ||
         name.ends_with("ID");
}

/// Why a column is hardly what is to be predicted; "" where it may be.
std::string why_not(const ColumnSight& column, int64_t rows) {
  std::string fault;
  const ColumnOptions options = column.facts.options(fault);
  if (is_id_like(column, rows)) return "is different in every row";
  if (column.facts.distinct() < 2) return "has one value alone";
  if (options.is_date()) return "holds dates";
  if (options.is_list()) return "holds lists";
  if (fault.starts_with("holds text") && 2 * column.facts.distinct() > rows) return "holds text";
  return "";
}

[[noreturn]] void ask(const TableSight& table, const std::string& why) {
  std::vector<std::string> names;
  for (const ColumnSight& column : table.columns) {
    if (why_not(column, table.rows).empty()) names.push_back(column.name);
  }
  if (names.empty()) names = table.names();
  throw Error(table.path + ": which column is to be predicted? " + why +
              "; write --target and one of these: " + join_first(std::move(names), 30, LeftOut::kCount));
}

/// The one column of `table` that `unlabelled` lacks; null: none, or several.
const ColumnSight* lacking_in(const TableSight& table, const TableSight& unlabelled) {
  const ColumnSight* found = nullptr;
  for (const ColumnSight& column : table.columns) {
    if (unlabelled.find(column.name)) continue;
    if (found) return nullptr;
    found = &column;
  }
  return found;
}

const ColumnSight& column_of(const TableSight& table, const TableSight* unlabelled, const InitOptions& options,
                             std::string& reason) {
  if (options.target) {
    const ColumnSight* column = table.find(*options.target);
    if (column) return reason = "as --target says", *column;
    if (std::ranges::find(table.unread, *options.target) != table.unread.end()) {
      throw Error(table.path + ": the column '" + *options.target +
                  "' holds values of a type that is not read, such as BLOBs or objects, and cannot be predicted");
    }
    throw Error(table.path + ": there is no column '" + *options.target + "'" +
                suggestion(*options.target, table.names()));
  }
  if (const ColumnSight* column = unlabelled ? lacking_in(table, *unlabelled) : nullptr) {
    return reason = "which the test file lacks", *column;
  }
  std::vector<const ColumnSight*> found;
  for (const ColumnSight& column : table.columns) {
    const bool is_usual = std::ranges::find(kUsualNames, lower_ascii(column.name)) != kUsualNames.end();
    if (is_usual) found.push_back(&column);
  }
  if (found.size() > 1) ask(table, "'" + found[0]->name + "' and '" + found[1]->name + "' are both called so");
  if (found.size() == 1) return reason = "for its name; --target COLUMN takes another", *found[0];
  const ColumnSight& last = table.columns.back();
  const std::string fault = why_not(last, table.rows);
  if (!fault.empty()) {
    ask(table, "None is called label, target, class or y, and the last, '" + last.name + "', " + fault);
  }
  return reason = "the last one; --target COLUMN takes another", last;
}

/// Whether numbers are rather classes than quantities.
bool are_classes(const ColumnSight& column, int64_t rows, std::string& doubt) {
  constexpr int64_t kMostClasses = 20;
  constexpr int64_t kRowsOfClass = 5;
  const int64_t distinct = column.facts.distinct();
  if (!column.facts.all_integers() || distinct > kMostClasses || distinct * kRowsOfClass > rows) {
    doubt =
        distinct <= 2 * kMostClasses && distinct * kRowsOfClass <= rows
            ? "'" + column.name + "' has " + std::to_string(distinct) +
                  " different numbers, which are predicted as quantities; --task classification takes them as classes"
            : "";
    return distinct <= 2;
  }
  if (distinct > 2) {
    doubt = "'" + column.name + "' has " + std::to_string(distinct) +
            " different whole numbers, which are taken as classes; --task regression predicts them as quantities";
  }
  return true;
}

}  // namespace

bool is_id_like(const ColumnSight& column, int64_t rows) {
  constexpr int64_t kFewRows = 20;
  const auto most = static_cast<int64_t>(ColumnFacts::kMostDistinct);
  const int64_t distinct = column.facts.distinct();
  const bool is_unique = distinct == rows || (rows > most && distinct == most);
  const bool is_nearly_so = is_named_as_id(column.name) && 10 * distinct >= 9 * std::min(rows, most);
  if (rows < kFewRows || column.facts.missing() > 0 || (!is_unique && !is_nearly_so)) return false;
  if (column.texts == 0) return column.counts_up || (column.facts.all_integers() && is_named_as_id(column.name));
  std::string fault;
  if (column.facts.options(fault).is_date() || column.facts.has_odd()) return false;
  const bool are_numbers = !column.facts.number_format().empty();
  constexpr double kFewWords = 1.5;
  return !are_numbers && (is_named_as_id(column.name) || column.mean_words() < kFewWords);
}

namespace {

/// The rows of each class, called as the recipe's label calls them.
std::map<std::string, int64_t> counts_of(const ColumnSight& column, const ColumnOptions& label) {
  std::map<std::string, int64_t> counts = column.counts;
  if (label.is_category()) counts.insert(column.words_counts.begin(), column.words_counts.end());
  if (!label.is_boolean() || column.texts == 0) return counts;
  std::array<std::set<std::string>, 2> words;
  std::array<int64_t, 2> rows{};
  for (const auto& [text, count] : counts) {
    Cell cell;
    cell.kind = Cell::Kind::kText;
    cell.text = text;
    const size_t place = parse_boolean(cell).value_or(false) ? 1 : 0;
    words[place].insert(text);
    rows[place] += count;
  }
  const bool are_named = !boolean_name(words[0]).empty() && !boolean_name(words[1]).empty();
  const std::array<std::string, 2> names =
      are_named ? std::array{boolean_name(words[0]), boolean_name(words[1])} : std::array<std::string, 2>{"0", "1"};
  return {{names[0], rows[0]}, {names[1], rows[1]}};
}

}  // namespace

TableTarget choose_target(const TableSight& table, const TableSight* unlabelled, const InitOptions& options) {
  TableTarget target;
  const ColumnSight& column = column_of(table, unlabelled, options, target.reason);
  target.name = column.name;
  if (column.facts.distinct() < 2) {
    throw Error(table.path + ":" + column.name +
                ": has one value alone, so that nothing can be learnt; write --target "
                "and another column");
  }
  const bool is_number = column.texts == 0 || column.facts.has_odd() || !column.facts.number_format().empty();
  if (options.task) {
    target.is_class = *options.task == "classification";
    if (!target.is_class && !is_number) {
      throw Error(table.path + ":" + column.name + ": holds no numbers, which --task regression needs");
    }
  } else {
    target.is_class = !is_number || are_classes(column, table.rows, target.doubt);
  }
  TableOptions as_label;
  as_label.path = table.path;
  as_label.label = column.name;
  as_label.task = target.is_class ? "classification" : "regression";
  as_label.broken = "skip";
  std::string fault;
  const ColumnOptions found = column.facts.label_options(as_label, fault);
  if (!fault.empty() && column.facts.number_format().empty())
    throw Error(table.path + ":" + column.name + ": " + fault);
  target.without = found.is_category() ? column.facts.empty() : column.facts.missing();
  if (!target.is_class) return target;
  target.counts = counts_of(column, found);
  target.num_classes = found.type == "integer" ? static_cast<int64_t>(column.facts.most()) + 1
                       : found.type == "boolean"
                           ? 2
                           : static_cast<int64_t>(found.categories.value_or(std::vector<std::string>()).size());
  if (!column.counts_all) {
    throw Error(table.path + ":" + column.name + ": has more than " + std::to_string(column.counts.size()) +
                " classes; write --target and another column");
  }
  return target;
}

}  // namespace trainrun
