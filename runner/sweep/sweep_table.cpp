#include "runner/sweep/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/text.h"
#include "runner/sweep/importance.h"
#include "runner/sweep/search_space.h"

namespace trainrun {
namespace {

using State = SweepTrial::State;
constexpr int kTableFigures = 5;

/// For a POSIX shell.
std::string quoted_word(const std::string& word) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./+,:@=";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos && word.front() != '-') return word;
  std::string text;
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return "'" + text + "'";
}

/// Trials of the whole length come before those that were left; of each the better one first.
bool is_better_trial(const SweepTrial& a, const SweepTrial& b, const SweepFacts& facts) {
  const auto figure_of = [](const SweepTrial& trial) { return trial.newest_figure(); };
  const auto is_told = [&](const SweepTrial& trial) {
    return trial.state != State::kFailed && figure_of(trial) && !std::isnan(*figure_of(trial));
  };
  if (is_told(a) != is_told(b)) return is_told(a);
  if (!is_told(a)) return false;
  if (a.figure.has_value() != b.figure.has_value()) return a.figure.has_value();
  if (!a.figure && a.step != b.step) return a.step > b.step;
  return facts.loss_of(*figure_of(a)) < facts.loss_of(*figure_of(b));
}

std::vector<SweepTable::Importance> importance_of(const SweepTable& table) {
  std::vector<SweepTable::Importance> all;
  for (size_t key = 0; key < table.facts.keys.size(); ++key) {
    std::vector<std::string> values;
    std::vector<double> figures;
    for (const SweepTable::Row& row : table.rows) {
      const auto figure = row.trial.newest_figure();
      if (!figure || !std::isfinite(*figure) || row.trial.state == State::kFailed) continue;
      values.push_back(row.trial.values.at(key).second);
      figures.push_back(*figure);
    }
    all.push_back({table.facts.keys[key], explained_variance(values, figures)});
  }
  std::ranges::stable_sort(all, std::greater<>(), [](const auto& one) { return one.explained.value_or(-1); });
  return all;
}

std::string sum_text(const SweepTable& table) {
  std::string text = counted(static_cast<int64_t>(table.rows.size()), "trial", "trials") + " of " +
                     std::to_string(table.facts.num_trials) + ": ";
  std::vector<std::string> states;
  for (const State state : {State::kFinished, State::kPaused, State::kWaiting, State::kFailed}) {
    if (const int64_t count = table.count(state); count > 0)
      states.push_back(std::to_string(count) + " " + state_word(state));
  }
  text += join(states);
  if (const auto points = table.num_points - static_cast<int64_t>(table.rows.size()); points > 0) {
    text += "; " + counted(points, "point was an earlier one", "points were earlier ones") + " again";
  }
  text += "; " + grouped(table.steps_trained()) + " steps trained";
  if (table.steps_shared() > 0) text += ", " + grouped(table.steps_shared()) + " shared";
  return text;
}

}  // namespace

int64_t SweepTable::steps_trained() const {
  int64_t sum = 0;
  for (const Row& row : rows) sum += row.steps_trained;
  return sum;
}

int64_t SweepTable::steps_shared() const {
  int64_t sum = 0;
  for (const Row& row : rows) sum += row.trial.origin ? row.trial.origin->step : 0;
  return sum;
}

int64_t SweepTable::count(State state) const {
  return std::ranges::count_if(rows, [&](const Row& row) { return row.trial.state == state; });
}

std::string SweepTable::best_command() const {
  if (!best) return "";
  std::string command = "trainrun " + quoted_word(facts.recipe);
  const SearchSpace space = parse_search_space(facts.arguments);
  std::vector<std::string> words = space.arguments;
  for (size_t i = 0; i < space.dimensions.size(); ++i) {
    const auto& [key, value] = rows[*best].trial.values.at(i);
    words[space.dimensions[i].argument] = key + "=" + value;
  }
  for (const std::string& word : words) command += " " + quoted_word(word);
  return command;
}

SweepTable make_sweep_table(const std::string& folder, const SweepState& state) {
  SweepTable table;
  table.folder = folder;
  table.facts = *state.facts();
  table.num_points = static_cast<int64_t>(state.trial_of_number().size());
  std::set<int64_t> seen;
  for (const auto& [number, id] : state.trial_of_number()) {
    if (!seen.insert(id).second) continue;
    const SweepTrial& trial = state.trial(id);
    char name[32];
    std::snprintf(name, sizeof name, "trial-%04lld", static_cast<long long>(id));
    table.rows.push_back({trial, name, trial.step - (trial.origin ? trial.origin->step : 0)});
  }
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const SweepTrial& trial = table.rows[i].trial;
    const bool counts = trial.state != State::kFailed && trial.newest_figure() && !std::isnan(*trial.newest_figure());
    if (counts && (!table.best || is_better_trial(trial, table.rows[*table.best].trial, table.facts))) table.best = i;
  }
  table.importance = importance_of(table);
  return table;
}

SweepTable read_sweep_table(const std::string& folder) {
  const SweepState state(Journal::read(folder + "/journal.jsonl"));
  if (!state.facts()) {
    throw Error(folder + " holds no sweep: it has no journal.jsonl; to begin one: trainrun sweep RECIPE key=[a,b] …");
  }
  return make_sweep_table(folder, state);
}

std::string to_text(const SweepTable& table) {
  using Align = TextTable::Align;
  std::vector<Align> columns = {Align::kLeft, Align::kLeft};
  std::vector<std::string> heads = {"trial", "state"};
  for (const std::string& key : table.facts.keys) {
    columns.push_back(Align::kRight);
    heads.push_back(key);
  }
  columns.insert(columns.end(), {Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  heads.insert(heads.end(), {table.facts.metric, "step", "of these shared", "time", ""});
  TextTable text(columns);
  text.add(heads);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const SweepTrial& trial = table.rows[i].trial;
    std::vector<std::string> cells = {table.rows[i].folder, state_word(trial.state)};
    for (const auto& [key, value] : trial.values) cells.push_back(value);
    const auto figure = trial.newest_figure();
    cells.push_back(figure ? in_figures(*figure, kTableFigures) : "");
    cells.push_back(grouped(trial.step));
    cells.push_back(trial.origin ? grouped(trial.origin->step) : "");
    cells.push_back(duration(trial.seconds));
    cells.push_back(table.best == i ? "best" : shortened(trial.why, 100));
    text.add(std::move(cells));
  }
  std::string all = text.to_string() + sum_text(table) + "\n";
  for (const SweepTable::Importance& one : table.importance) {
    if (!one.explained) continue;
    all += one.key + " alone explains " + in_figures(100 * *one.explained, 3) + " % of the variance of " +
           table.facts.metric + "\n";
  }
  if (table.best) all += "the best, trained again: " + table.best_command() + "\n";
  return all;
}

nlohmann::ordered_json to_json(const SweepTable& table) {
  using nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& figure) {
    return figure && std::isfinite(*figure) ? ordered_json(*figure) : ordered_json();
  };
  ordered_json trials = ordered_json::array();
  for (const SweepTable::Row& row : table.rows) {
    const SweepTrial& trial = row.trial;
    ordered_json values = ordered_json::object(), rungs = ordered_json::array(), origin;
    for (const auto& [key, value] : trial.values) values[key] = value;
    for (const SweepTrial::Reached& at : trial.reached) {
      rungs.push_back({{"rung", at.rung}, {"step", at.step}, {"figure", number(at.figure)}});
    }
    if (trial.origin) origin = {{"trial", trial.origin->trial}, {"step", trial.origin->step}};
    trials.push_back({{"trial", trial.id},
                      {"folder", table.folder + "/" + row.folder},
                      {"state", state_word(trial.state)},
                      {"why", trial.why},
                      {"values", values},
                      {"figure", number(trial.newest_figure())},
                      {"step", trial.step},
                      {"steps_trained", row.steps_trained},
                      {"origin", origin},
                      {"rungs", rungs},
                      {"seconds", trial.seconds},
                      {"digest", trial.digest}});
  }
  ordered_json importance = ordered_json::object();
  for (const SweepTable::Importance& one : table.importance) importance[one.key] = number(one.explained);
  ordered_json best;
  if (table.best) best = {{"trial", table.rows[*table.best].trial.id}, {"command", table.best_command()}};
  return {{"folder", table.folder},
          {"recipe", table.facts.recipe},
          {"metric", table.facts.metric},
          {"mode", table.facts.better == MonitorMode::kMax ? "max" : "min"},
          {"method", table.facts.method},
          {"trials", trials},
          {"best", best},
          {"steps_trained", table.steps_trained()},
          {"steps_shared", table.steps_shared()},
          {"importance", importance}};
}

}  // namespace trainrun
