// The table of runs, for people and as JSON.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <numeric>

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

/// A column of the table. Columns are given up for want of room in the order of their `rank`, the largest first.
struct ShownColumn {
  std::string head;
  std::vector<std::string> cells;
  bool is_number = false;
  int rank = 0;

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

std::vector<ShownColumn> columns_of(const RunTable& table, bool& cut) {
  std::vector<ShownColumn> columns = {{"run", {}, false, 0}, {"name", {}, false, 3}, {"state", {}, false, 1},
                                      {"step", {}, true, 4}, {"epoch", {}, true, 8}, {"best", {}, false, 2},
                                      {"loss", {}, true, 5}, {"time", {}, true, 6},  {"when", {}, false, 7}};
  constexpr size_t kWidestState = 44;
  bool has_names = false;
  for (const RunRecord& run : table.runs) {
    has_names = has_names || run.name != std::filesystem::path(run.path).filename().string();
    const std::vector<std::string> cells = {cell_text(path_text(table, run), kWidestState, cut),
                                            cell_text(run.name, kWidestCell, cut),
                                            cell_text(without_secrets(state_text(run)), kWidestState, cut),
                                            run.folds  ? std::to_string(*run.folds) + " folds"
                                            : run.step ? std::to_string(*run.step)
                                                       : "",
                                            run.epoch ? std::to_string(*run.epoch) : "",
                                            cell_text(best_text(run), kWidestState, cut),
                                            run.loss ? in_figures(*run.loss, 4) : "",
                                            run.seconds ? duration(*run.seconds) : "",
                                            time_text(run.changed)};
    for (size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back(cells[i]);
  }
  int rank = 10;
  for (const RunTable::Key& key : table.keys) {
    ShownColumn column{cell_text(key.path, 2 * kWidestCell, cut), {}, true, rank++};
    for (const std::string& value : key.values) {
      column.is_number = column.is_number && (value.empty() || parse_number(value));
      column.cells.push_back(cell_text(value, kWidestCell, cut));
    }
    columns.push_back(std::move(column));
  }
  std::erase_if(columns, [&](const ShownColumn& column) {
    const bool is_empty = std::ranges::all_of(column.cells, [](const std::string& cell) { return cell.empty(); });
    return is_empty || (column.head == "name" && !has_names);
  });
  return columns;
}

size_t width_of(const std::vector<ShownColumn>& columns) {
  size_t width = 0;
  for (const ShownColumn& column : columns) width += column.width() + (width > 0 ? kGap : 0);
  return width;
}

/// Takes columns out until the table fits; returns their names.
std::vector<std::string> fit(std::vector<ShownColumn>& columns, size_t width) {
  std::vector<std::string> left_out;
  while (width_of(columns) > width && columns.size() > 1) {
    const auto last = std::ranges::max_element(columns, {}, &ShownColumn::rank);
    left_out.insert(left_out.begin(), last->head);
    columns.erase(last);
  }
  return left_out;
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

std::string to_text(const RunTable& table, size_t width) {
  constexpr size_t kMostNamed = 4;
  std::string text;
  if (table.runs.empty()) {
    text = "no run " + std::string(table.notes.empty() ? "" : "fits ") + "in " + table.folder + "\n";
  } else {
    bool cut = false;
    std::vector<ShownColumn> columns = columns_of(table, cut);
    const std::vector<std::string> left_out = width > 0 ? fit(columns, width) : std::vector<std::string>();
    std::string lines = lines_of(columns, table.runs.size());
    text += lines;
    std::string said;
    if (!left_out.empty()) {
      said =
          counted(static_cast<int64_t>(left_out.size()), "column does", "columns do") + " not fit: " + join(left_out);
    }
    if (cut) said += (said.empty() ? "" : "; ") + std::string("… stands for what is cut");
    if (!said.empty()) text += broken_into_lines(said + "; --json shows all", width);
  }
  for (const std::string& note : table.notes) text += broken_into_lines(note, width);
  const auto add = [&](const std::vector<std::string>& names, const std::string& one, const std::string& many) {
    if (names.empty()) return;
    const std::string count = counted(static_cast<int64_t>(names.size()), one, many);
    text += broken_into_lines(count + ": " + join_first(names, kMostNamed), width);
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
