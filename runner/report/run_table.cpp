#include "runner/report/run_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>
#include <set>

#include "registry/language/interpolation.h"
#include "registry/language/text_forms.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/recipe/recipe_defaults.h"
#include "runner/run/run_identity.h"

namespace trainrun {
namespace {

/// What a run has under a key: always in words, and as a number where it is one.
struct KeyValue {
  std::string text;
  std::optional<double> number;
};

KeyValue as_number(double number) { return {in_figures(number, 6), number}; }

const std::vector<std::string>& own_keys() {
  static const std::vector<std::string> keys = {"name", "path", "state",   "step", "epoch",
                                                "loss", "best", "seconds", "when"};
  return keys;
}

std::optional<KeyValue> own_value(const RunRecord& run, const std::string& key) {
  const auto counted_value = [](const std::optional<int64_t>& number) -> std::optional<KeyValue> {
    if (!number) return std::nullopt;
    return KeyValue{std::to_string(*number), static_cast<double>(*number)};
  };
  if (key == "name") return KeyValue{run.name, std::nullopt};
  if (key == "path") return KeyValue{run.path, std::nullopt};
  if (key == "state") return KeyValue{state_word(run.state), std::nullopt};
  if (key == "step") return counted_value(run.step);
  if (key == "epoch") return counted_value(run.epoch);
  if (key == "loss" && run.loss) return as_number(*run.loss);
  if (key == "best" && run.best) return as_number(run.best->value);
  if (key == "seconds" && run.seconds) return as_number(*run.seconds);
  if (key == "when") return KeyValue{time_text(run.changed), static_cast<double>(run.changed)};
  for (const auto& [name, value] : run.evaluation) {
    if (name == key) return as_number(value);
  }
  return std::nullopt;
}

const Value* value_at(const Value& recipe, const Path& path) {
  const Value* value = &recipe;
  for (const PathStep& step : path) {
    if (step.is_index) {
      if (!value->is_list() || step.index >= value->items().size()) return nullptr;
      value = &value->items()[step.index];
    } else {
      value = value->find(step.key);
    }
    if (!value) return nullptr;
  }
  return value;
}

/// Looks up keys of runs, their recipes completed once.
class Lookup {
 public:
  Lookup(const std::vector<RunRecord>& runs, const Catalog& catalog) {
    for (const RunRecord& run : runs) complete_.push_back(with_defaults(run.recipe, catalog));
  }

  std::optional<KeyValue> value(const std::vector<RunRecord>& runs, size_t run, const std::string& key) const {
    if (const auto own = own_value(runs[run], key)) return own;
    std::string error;
    const auto path = parse_path(key, error);
    const Value* found = path ? value_at(complete_[run], *path) : nullptr;
    if (!found) return std::nullopt;
    const bool is_text = !found->is_scalar() || found->scalar_type() == ScalarType::kString;
    return KeyValue{value_text(*found), is_text ? std::nullopt : parse_number(found->text())};
  }

  /// Throws Error where no run has the key.
  void require(const std::vector<RunRecord>& runs, const std::string& key) const {
    if (runs.empty() || std::ranges::count(own_keys(), key) > 0) return;
    std::set<std::string> known(own_keys().begin(), own_keys().end());
    for (size_t i = 0; i < runs.size(); ++i) {
      if (value(runs, i, key)) return;
      for (const auto& figure : runs[i].evaluation) known.insert(figure.first);
      add_keys(complete_[i], "", known);
    }
    const std::string near = nearest(key, {known.begin(), known.end()});
    throw Error("no run has the key '" + key + "'; " + (near.empty() ? "" : "did you mean " + near + "? ") +
                "There are the keys of recipes (optimizer.lr), the figures of evaluations (eval/loss), and " +
                join(own_keys()));
  }

 private:
  static void add_keys(const Value& value, const std::string& path, std::set<std::string>& keys) {
    if (value.is_scalar() || value.is_null()) keys.insert(path);
    for (const Value::Entry& entry : value.entries()) {
      add_keys(entry.value, path.empty() ? entry.key : path + "." + entry.key, keys);
    }
  }

  std::vector<Value> complete_;
};

bool holds(const KeyValue& found, const RunFilter& filter) {
  const auto wanted = parse_number(filter.value);
  const bool as_numbers = found.number && wanted;
  const auto compared = [&](const auto& a, const auto& b) {
    if (filter.relation == "=") return a == b;
    if (filter.relation == "!=") return a != b;
    if (filter.relation == "<") return a < b;
    if (filter.relation == "<=") return a <= b;
    return filter.relation == ">" ? a > b : a >= b;
  };
  return as_numbers ? compared(*found.number, *wanted) : compared(found.text, filter.value);
}

/// Numbers have an order among numbers alone: 'eval/loss<1e' is a slip of the keyboard, not a question about letters.
void require_comparable(const std::vector<RunRecord>& runs, const RunFilter& filter, const Lookup& lookup) {
  const bool asks_order = filter.relation[0] == '<' || filter.relation[0] == '>';
  if (!asks_order || parse_number(filter.value)) return;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto found = lookup.value(runs, i, filter.key);
    if (!found || !found->number) continue;
    throw Error("'" + filter.key + filter.relation + filter.value + "': " + filter.key + " is a number (" +
                found->text + " in " + runs[i].path + "), but '" + filter.value + "' is not");
  }
}

/// Whether the first comes first; runs without the value come last.
bool comes_before(const std::optional<KeyValue>& a, const std::optional<KeyValue>& b, bool descending) {
  if (!a || !b) return a.has_value() && !b.has_value();
  if (a->number && b->number) {
    const bool a_is_nan = std::isnan(*a->number), b_is_nan = std::isnan(*b->number);
    if (a_is_nan || b_is_nan) return !a_is_nan && b_is_nan;
    return descending ? *a->number > *b->number : *a->number < *b->number;
  }
  return descending ? a->text > b->text : a->text < b->text;
}

void choose(RunTable& table, const std::vector<RunFilter>& filters, const Catalog& catalog) {
  const Lookup lookup(table.runs, catalog);
  std::map<std::string, int64_t> without;
  std::vector<RunRecord> chosen;
  for (const RunFilter& filter : filters) lookup.require(table.runs, filter.key);
  for (const RunFilter& filter : filters) require_comparable(table.runs, filter, lookup);
  for (size_t i = 0; i < table.runs.size(); ++i) {
    const bool fits = std::ranges::all_of(filters, [&](const RunFilter& filter) {
      const auto found = lookup.value(table.runs, i, filter.key);
      if (!found) ++without[filter.key];
      return found && holds(*found, filter);
    });
    if (fits) chosen.push_back(table.runs[i]);
  }
  for (const auto& [key, count] : without) {
    table.notes.push_back(counted(count, "run has no ", "runs have no ") + key + " and " + (count == 1 ? "is" : "are") +
                          " left out");
  }
  table.runs = std::move(chosen);
}

void sort(RunTable& table, const RunTableOptions& options, const Catalog& catalog) {
  if (options.sort.empty()) return;
  const Lookup lookup(table.runs, catalog);
  lookup.require(table.runs, options.sort);
  std::vector<std::pair<std::optional<KeyValue>, size_t>> order;
  for (size_t i = 0; i < table.runs.size(); ++i) order.emplace_back(lookup.value(table.runs, i, options.sort), i);
  std::ranges::stable_sort(
      order, [&](const auto& a, const auto& b) { return comes_before(a.first, b.first, options.descending); });
  std::vector<RunRecord> sorted;
  for (const auto& [value, i] : order) sorted.push_back(std::move(table.runs[i]));
  table.runs = std::move(sorted);
}

}  // namespace

namespace {

/// Within a list or a map: in quotation marks where it would be taken for nothing, or for more than one.
std::string item_text(const Value& item) {
  const std::string text = value_text(item);
  const bool is_word = item.is_scalar() && !text.empty() && text.find_first_of(",[]{}") == std::string::npos &&
                       text.front() != ' ' && text.back() != ' ';
  return is_word || !item.is_scalar() || item.is_null() ? text : "'" + text + "'";
}

}  // namespace

std::string value_text(const Value& value) {
  if (value.is_null()) return "null";
  std::string text;
  if (value.is_list()) {
    for (const Value& item : value.items()) text += (text.empty() ? "" : ", ") + item_text(item);
    return "[" + text + "]";
  }
  if (value.is_map()) {
    for (const Value::Entry& entry : value.entries()) {
      text += (text.empty() ? "" : ", ") + entry.key + ": " + item_text(entry.value);
    }
    return "{" + text + "}";
  }
  for (const char letter : value.text()) text += letter == '\n' || letter == '\t' ? ' ' : letter;
  return without_secrets(text);
}

std::string time_text(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  localtime_r(&time, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &local);
  return text.data();
}

std::vector<RunFilter> parse_filters(const std::string& text) {
  constexpr std::string_view kAnd = " and ";
  std::vector<RunFilter> filters;
  const auto trimmed = [](const std::string& word) {
    const size_t begin = word.find_first_not_of(' ');
    return begin == std::string::npos ? std::string() : word.substr(begin, word.find_last_not_of(' ') + 1 - begin);
  };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kAnd, begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    const size_t at = one.find_first_of("=!<>");
    const size_t size = at != std::string::npos && at + 1 < one.size() && one[at + 1] == '=' ? 2 : 1;
    std::string relation = at == std::string::npos ? "" : one.substr(at, size);
    if (relation == "==") relation = "=";
    const std::string key = trimmed(one.substr(0, std::min(at, one.size())));
    if (relation.empty() || relation == "!" || key.empty()) {
      throw Error("'" + trimmed(one) +
                  "' is not a condition; write a key, one of = != < <= > >=, and a value: 'optimizer.lr>1e-3'; join "
                  "several by ' and '");
    }
    filters.push_back({key, relation, trimmed(one.substr(at + size))});
    begin = end + kAnd.size();
  }
  return filters;
}

namespace {

using ChangesByPath = std::map<std::string, std::map<size_t, RecipeChange>>;  // then by run

/// Whether something that the path lies in is another one as a whole: a layer of another type.
bool is_within_change(const ChangesByPath& changes, const std::string& path, size_t run) {
  for (size_t end = path.find_first_of(".["); end != std::string::npos; end = path.find_first_of(".[", end + 1)) {
    const auto whole = changes.find(path.substr(0, end));
    if (whole != changes.end() && whole->second.contains(run)) return true;
  }
  return false;
}

/// The keys that are asked for, of all runs. Throws Error for one that no run has.
std::vector<RunTable::Key> keys_asked_for(const std::vector<RunRecord>& runs, const std::vector<std::string>& columns,
                                          const Catalog& catalog) {
  const Lookup lookup(runs, catalog);
  std::vector<RunTable::Key> keys;
  for (const std::string& column : columns) {
    if (column == "run") continue;  // always shown
    RunTable::Key key{column == "time" ? "seconds" : column, {}, true};
    lookup.require(runs, key.path);
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto found = lookup.value(runs, i, key.path);
      key.values.push_back(found ? found->text : "");
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace

std::vector<RunTable::Key> differing_keys(const std::vector<RunRecord>& runs) {
  ChangesByPath changes;
  for (size_t i = 1; i < runs.size(); ++i) {
    for (RecipeChange& change : changes_between(runs[0].recipe, runs[i].recipe, true, Lists::kByPosition)) {
      if (change.path != "name" && change.path != "output_dir") changes[change.path].emplace(i, std::move(change));
    }
  }
  std::vector<RunTable::Key> keys;
  for (const auto& [path, of_runs] : changes) {
    const bool changes_run = std::ranges::any_of(
        of_runs, [](const auto& change) { return change.second.effect != RecipeChange::Effect::kNone; });
    RunTable::Key key{path, {}, changes_run};
    std::string error;
    const auto steps = parse_path(path, error);
    const std::string first = value_text(of_runs.begin()->second.before);
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto own = of_runs.find(i);
      const Value* there = steps && own == of_runs.end() ? value_at(runs[i].recipe, *steps) : nullptr;
      const std::string as_first = is_within_change(changes, path, i) ? "" : first;
      key.values.push_back(own != of_runs.end() ? value_text(own->second.now) : there ? value_text(*there) : as_first);
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

RunTable make_run_table(const std::string& folder, const RunTableOptions& options, const Catalog& catalog) {
  FoundRuns found = find_runs(folder, catalog);
  RunTable table;
  table.folder = folder;
  table.runs = std::move(found.runs);
  table.damaged = std::move(found.damaged);
  table.foreign = std::move(found.foreign);
  const size_t num_found = table.runs.size();
  if (!options.filters.empty()) choose(table, options.filters, catalog);
  table.num_passed_over = num_found - table.runs.size();
  sort(table, options, catalog);
  table.keys = differing_keys(table.runs);
  if (!options.columns.empty()) table.columns = keys_asked_for(table.runs, options.columns, catalog);
  for (const RunRecord& run : table.runs) table.notes.insert(table.notes.end(), run.notes.begin(), run.notes.end());
  return table;
}

}  // namespace trainrun
