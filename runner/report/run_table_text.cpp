// The table of runs, for people and as JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "registry/language/text_forms.h"
#include "registry/language/utf8.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/report/run_table.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;
constexpr size_t kGap = 2;          // between columns
constexpr size_t kWidestCell = 24;  // of a key's values, and of why a run ended

/// A column of the table. Where there is little room, those of the smallest `rank` are shown.
struct ShownColumn {
  std::string head;
  std::string name;  // in full
  int rank = 0;
  bool is_key = false;  // of a recipe
  bool is_number = false;
  bool is_cut = false;  // a cell, or the head
  std::vector<std::string> cells = {};

  size_t width() const {
    size_t widest = text_width(head);
    for (const std::string& cell : cells) widest = std::max(widest, text_width(cell));
    return widest;
  }
};

/// At most so many columns of one line of printable text; `cut` becomes true where that is not all.
std::string cell_text(const std::string& text, size_t most, bool& cut) {
  std::string line;
  size_t width = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const uint32_t point = next_code_point(text, offset);
    const bool is_plain = point != kInvalidCodePoint && is_printable(point);
    offset = std::max(offset, begin + 1);
    if (++width > most) {
      cut = true;
      size_t end = line.size();  // of the last character, which gives way
      do {
        if (end > 0) --end;
      } while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80);
      return line.substr(0, end) + "…";
    }
    line += is_plain ? text.substr(begin, offset - begin) : "?";
  }
  return line;
}

std::string state_text(const RunRecord& run) {
  const std::string at = run.step ? " at step " + std::to_string(*run.step) : "";
  switch (run.state) {
    case RunRecord::State::kFinished:
      return "finished" + (run.why.empty() ? "" : " (" + run.why + ")");
    case RunRecord::State::kRunning:
      return "running";
    case RunRecord::State::kStopped:
      return "stopped" + at + " (" + run.why + ")";
    default:
      return "failed" + at + ": " + run.why;
  }
}

std::string best_text(const RunRecord& run) {
  if (!run.best) return "";
  return run.best->name + " " + in_figures(run.best->value, 5) + (run.best->is_last ? " (last)" : "");
}

std::string path_text(const RunTable& table, const RunRecord& run) {
  const std::string path = std::filesystem::path(run.path).lexically_relative(table.folder).string();
  return path.empty() || path == "." ? run.path : path;
}

/// What a run's folder tells of it.
std::vector<ShownColumn> own_columns(const RunTable& table) {
  constexpr size_t kWidestState = 44;
  std::vector<ShownColumn> columns;
  const auto add = [&](const std::string& head, int rank, bool is_number, size_t most,
                       const std::function<std::string(const RunRecord&)>& text) {
    ShownColumn column{head, head, rank, false, is_number};
    for (const RunRecord& run : table.runs) column.cells.push_back(cell_text(text(run), most, column.is_cut));
    columns.push_back(std::move(column));
  };
  const auto number = [](const std::optional<int64_t>& one) { return one ? std::to_string(*one) : ""; };
  add("run", 0, false, kWidestState, [&](const RunRecord& run) { return path_text(table, run); });
  add("name", 3, false, kWidestCell, [](const RunRecord& run) { return run.name; });
  add("state", 1, false, kWidestState, [](const RunRecord& run) { return without_secrets(state_text(run)); });
  add("step", 5, true, kWidestCell,
      [&](const RunRecord& run) { return run.folds ? std::to_string(*run.folds) + " folds" : number(run.step); });
  add("epoch", 11, true, kWidestCell, [&](const RunRecord& run) { return number(run.epoch); });
  add("best", 2, false, kWidestState, best_text);
  add("loss", 6, true, kWidestCell, [](const RunRecord& run) { return run.loss ? in_figures(*run.loss, 4) : ""; });
  add("time", 9, true, kWidestCell, [](const RunRecord& run) { return run.seconds ? duration(*run.seconds) : ""; });
  add("when", 10, false, kWidestCell, [](const RunRecord& run) { return time_text(run.changed); });
  return columns;
}

ShownColumn key_column(const RunTable::Key& key, int rank) {
  ShownColumn column{"", key.path, rank, true, true};
  column.head = cell_text(key.path, 2 * kWidestCell, column.is_cut);
  for (const std::string& value : key.values) {
    column.is_number = column.is_number && (value.empty() || parse_number(value));
    column.cells.push_back(cell_text(value, kWidestCell, column.is_cut));
  }
  return column;
}

/// How many pairs of runs differ in a key.
int64_t pairs_that_differ(const std::vector<std::string>& values) {
  std::map<std::string, int64_t> runs_of;
  int64_t pairs = 0;
  int64_t before = 0;
  for (const std::string& value : values) pairs += before++ - runs_of[value]++;
  return pairs;
}

/// The most telling first: what changes a run, what can be shown whole, what most pairs of runs differ in, and what lies
/// near the recipe's root.
std::vector<RunTable::Key> by_what_they_tell(std::vector<RunTable::Key> keys) {
  const auto place = [](const RunTable::Key& key) {
    const bool is_long =
        std::ranges::any_of(key.values, [](const std::string& value) { return text_width(value) > kWidestCell; });
    const auto depth = std::ranges::count_if(key.path, [](char c) { return c == '.' || c == '['; });
    return std::tuple(!key.changes_run, is_long, -pairs_that_differ(key.values), depth);
  };
  std::ranges::stable_sort(keys, {}, place);
  return keys;
}

/// Those that tell something: what the folders tell, and the keys that differ.
std::vector<ShownColumn> telling_columns(const RunTable& table) {
  std::vector<ShownColumn> columns = own_columns(table);
  constexpr std::array kRanksOfFirst = {4, 7, 8};  // among those of own_columns
  int rank = 12;
  size_t count = 0;
  for (const RunTable::Key& key : by_what_they_tell(table.keys)) {
    columns.push_back(key_column(key, count < kRanksOfFirst.size() ? kRanksOfFirst.at(count) : rank++));
    ++count;
  }
  const bool has_names = std::ranges::any_of(
      table.runs, [](const RunRecord& run) { return run.name != std::filesystem::path(run.path).filename().string(); });
  std::erase_if(columns, [&](const ShownColumn& column) {
    const bool is_empty = std::ranges::all_of(column.cells, [](const std::string& cell) { return cell.empty(); });
    return is_empty || (column.name == "name" && !has_names);
  });
  return columns;
}

/// Those that were asked for, beside the runs' paths.
std::vector<ShownColumn> asked_columns(const RunTable& table) {
  std::vector<ShownColumn> own = own_columns(table);
  std::vector<ShownColumn> columns = {own[0]};
  for (const RunTable::Key& key : *table.columns) {
    const std::string head = key.path == "seconds" ? "time" : key.path;
    const auto found = std::ranges::find(own, head, &ShownColumn::name);
    columns.push_back(found == own.end() ? key_column(key, 1) : *found);
  }
  return columns;
}

/// Takes out what does not fit, and returns it.
std::vector<ShownColumn> fit(std::vector<ShownColumn>& columns, size_t width) {
  std::vector<int> ranks;
  for (const ShownColumn& column : columns) ranks.push_back(column.rank);
  std::ranges::sort(ranks);
  std::set<int> shown;
  size_t used = 0;
  for (const int rank : ranks) {
    const size_t needed = std::ranges::find(columns, rank, &ShownColumn::rank)->width() + (shown.empty() ? 0 : kGap);
    if (!shown.empty() && used + needed > width) continue;
    shown.insert(rank);
    used += needed;
  }
  std::vector<ShownColumn> fitting, left_out;
  for (ShownColumn& column : columns) (shown.contains(column.rank) ? fitting : left_out).push_back(std::move(column));
  columns = std::move(fitting);
  return left_out;
}

/// "27 more keys differ: optimizer.betas, …; 2 columns do not fit: epoch, when", with as many keys as a line has room for.
std::string left_out_text(const std::vector<ShownColumn>& left_out, size_t width) {
  std::vector<std::string> keys, others;
  for (const ShownColumn& column : left_out) (column.is_key ? keys : others).push_back(column.name);
  std::string text;
  if (!keys.empty()) {
    text = counted(static_cast<int64_t>(keys.size()), "more key differs", "more keys differ") + ": ";
    size_t named = 1;
    while (named < keys.size() && text_width(text + join_first(keys, named + 1)) <= width) ++named;
    text += join_first(keys, named);
  }
  if (others.empty()) return text;
  return text + (text.empty() ? "" : "; ") + counted(static_cast<int64_t>(others.size()), "column does", "columns do") +
         " not fit: " + join(others);
}

std::string lines_of(const std::vector<ShownColumn>& columns, size_t num_rows) {
  std::vector<TextTable::Align> alignment;
  for (const ShownColumn& column : columns) {
    alignment.push_back(column.is_number ? TextTable::Align::kRight : TextTable::Align::kLeft);
  }
  TextTable table(alignment);
  std::vector<std::string> heads;
  for (const ShownColumn& column : columns) heads.push_back(column.head);
  table.add(heads);
  for (size_t row = 0; row < num_rows; ++row) {
    std::vector<std::string> cells;
    for (const ShownColumn& column : columns) cells.push_back(column.cells[row]);
    table.add(cells);
  }
  return table.to_string();
}

std::string broken_into_lines(const std::string& text, size_t width) {
  return width == 0 ? text + "\n" : join(wrapped(text, width), "\n") + "\n";
}

ordered_json named_figures(const Figures& figures) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, value] : figures) json[name] = std::isfinite(value) ? ordered_json(value) : ordered_json();
  return json;
}

template <class Number>
ordered_json json_or_null(const std::optional<Number>& number) {
  return number ? ordered_json(*number) : ordered_json();
}

std::string utc_text(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

ordered_json json_of(const RunRecord& run) {
  ordered_json json = {{"path", run.path}, {"name", run.name}, {"state", state_word(run.state)}};
  json["why"] = run.why.empty() ? ordered_json() : ordered_json(without_secrets(run.why));
  json["step"] = json_or_null(run.step);
  json["epoch"] = json_or_null(run.epoch);
  if (run.folds) json["folds"] = *run.folds;
  json["best"] = ordered_json();
  if (run.best) {
    json["best"] = {{"name", run.best->name},
                    {"value", run.best->value},
                    {"step", json_or_null(run.best->step)},
                    {"is_last", run.best->is_last}};
  }
  json["loss"] = run.loss && std::isfinite(*run.loss) ? ordered_json(*run.loss) : ordered_json();
  json["evaluation"] = named_figures(run.evaluation);
  json["seconds"] = json_or_null(run.seconds);
  json["when"] = utc_text(run.changed);
  json["keys"] = ordered_json::object();
  return json;
}

}  // namespace

std::string to_text(const RunTable& table, size_t width, bool wraps) {
  constexpr size_t kMostNamed = 4;
  const size_t wrapped_at = wraps ? width : 0;
  std::string text;
  if (table.runs.empty()) {
    text = table.num_passed_over == 0
               ? "there are no runs in " + table.folder + "\n"
               : "the filter holds for none of the " +
                     counted(static_cast<int64_t>(table.num_passed_over), "run", "runs") + " in " + table.folder + "\n";
  } else {
    std::vector<ShownColumn> columns = table.columns ? asked_columns(table) : telling_columns(table);
    std::vector<ShownColumn> left_out;
    if (width > 0 && !table.columns) left_out = fit(columns, width);
    text += lines_of(columns, table.runs.size());
    std::string said = left_out_text(left_out, width);
    const std::string advice = said.empty() ? "--json shows all" : "--columns NAME,… shows those named, --json all";
    if (std::ranges::any_of(columns, &ShownColumn::is_cut)) {
      said += (said.empty() ? "" : "; ") + std::string("… stands for what is cut");
    }
    if (!said.empty()) text += broken_into_lines(said + "; " + advice, wrapped_at);
  }
  for (const std::string& note : table.notes) text += broken_into_lines(note, wrapped_at);
  const auto add = [&](const std::vector<std::string>& names, const std::string& one, const std::string& many) {
    if (names.empty()) return;
    const std::string count = counted(static_cast<int64_t>(names.size()), one, many);
    text += broken_into_lines(count + ": " + join_first(names, kMostNamed), wrapped_at);
  };
  add(table.damaged, "run is damaged", "runs are damaged");
  add(table.foreign, "folder holds no run", "folders hold no run");
  return text;
}

ordered_json to_json(const RunTable& table) {
  ordered_json json = {{"folder", table.folder}, {"runs", ordered_json::array()}};
  for (size_t i = 0; i < table.runs.size(); ++i) {
    ordered_json run = json_of(table.runs[i]);
    for (const RunTable::Key& key : table.keys) {
      const auto number = parse_number(key.values[i]);
      run["keys"][key.path] = number ? ordered_json(*number) : ordered_json(key.values[i]);
    }
    json["runs"].push_back(std::move(run));
  }
  json["damaged"] = table.damaged;
  json["foreign"] = table.foreign;
  json["notes"] = table.notes;
  return json;
}

}  // namespace trainrun
