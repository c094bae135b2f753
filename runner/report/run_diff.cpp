#include "runner/report/run_diff.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "registry/formats/files/file_io.h"
#include "registry/language/text_forms.h"
#include "runner/base/text.h"
#include "runner/model/recipe_loader.h"
#include "runner/recipe/recipe_source.h"
#include "runner/report/run_table.h"
#include "runner/run/checkpoint_state.h"
#include "runner/run/watched_figure.h"
#include "runner/train/evaluation.h"
#include "runner/train/run_change.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Why a run does not go on with another value of a key: by what the key begins with; the first that fits.
constexpr std::array<std::array<const char*, 2>, 13> kReasons = {{
    {"model", "the saved weights are those of another model"},
    {"models", "the losses so far were computed with another model"},
    {"optimizer", "the steps so far were those of another optimizer"},
    {"scheduler", "the learning rates so far were others"},
    {"loss", "the gradients so far were those of another loss"},
    {"metrics", "the figures so far are those of other metrics"},
    {"dataset", "the samples so far were others"},
    {"dataloader", "the batches so far were others"},
    {"seed", "every random draw so far was another"},
    {"callbacks", "the callbacks so far were others"},
    {"evaluation", "the scheduler watches evaluations: with other ones, the rates so far were others"},
    {"checkpoint.resume", "it begins with other weights"},
    {"", "the steps so far were computed with another value"},
}};

bool is_at_or_below(const std::string& path, const std::string& key) {
  return key.empty() || path == key || path.starts_with(key + ".") || path.starts_with(key + "[");
}

std::string reason_for(const RecipeChange& change) {
  if (!change.breaks_resume()) return "";
  const auto found =
      std::ranges::find_if(kReasons, [&](const auto& reason) { return is_at_or_below(change.path, reason[0]); });
  return (*found)[1];
}

json state_of(const std::string& checkpoint) {
  return parse_checkpoint_state(read_file(checkpoint + "/state.json", kMostStateBytes)).content;
}

Figures figures_of(const json& state) {
  Figures figures;
  for (const json& figure : state.value("metrics", json::array())) {
    figures.emplace_back(figure.at(0), figure.at(1).is_number() ? figure.at(1).get<double>() : NAN);
  }
  return figures;
}

Value recipe_of_run(const std::string& path) {
  ResolvedRecipe resolved = resolve_recipe(path, {});  // as a resume reads it
  if (!resolved.unreadable.empty()) throw Error(resolved.unreadable);
  if (!resolved.value.is_map()) throw RecipeError(resolved.problems);
  return std::move(resolved.value);
}

std::string figure_text(double value) { return std::isnan(value) ? "nan" : in_figures(value, 6); }

/// A row for each name that either side has, in the first one's order.
std::vector<RunDiff::Row> joined_rows(const std::vector<std::pair<std::string, std::string>>& a,
                                      const std::vector<std::pair<std::string, std::string>>& b) {
  std::vector<RunDiff::Row> rows;
  const auto row_of = [&](const std::string& name) -> RunDiff::Row& {
    const auto found = std::ranges::find(rows, name, &RunDiff::Row::name);
    return found == rows.end() ? rows.emplace_back(RunDiff::Row{name, "", "", false}) : *found;
  };
  for (const auto& [name, text] : a) row_of(name).a = text;
  for (const auto& [name, text] : b) row_of(name).b = text;
  for (RunDiff::Row& row : rows) row.differs = row.a != row.b;
  return rows;
}

std::vector<std::pair<std::string, std::string>> figure_texts(const DiffSide& side) {
  std::vector<std::pair<std::string, std::string>> texts;
  if (side.step) texts.emplace_back("step", grouped(*side.step));
  if (side.run) texts.emplace_back("state", state_word(side.run->state));
  if (side.run && side.run->best && !side.run->best->is_last) {
    const RunRecord::Best& best = *side.run->best;
    texts.emplace_back("best " + best.name,
                       figure_text(best.value) + (best.step ? " at step " + std::to_string(*best.step) : ""));
  }
  for (const auto& [name, value] : side.figures) texts.emplace_back(name, figure_text(value));
  if (side.run && side.run->loss) texts.emplace_back("train/loss", figure_text(*side.run->loss));
  return texts;
}

std::vector<std::pair<std::string, std::string>> control_texts(const DiffSide& side) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const RunChange& change : side.controls) {
    texts.emplace_back(change.key + " after step " + grouped(change.step), change.before + " → " + change.value);
  }
  return texts;
}

/// What a checkpoint says of the programs and of the machine that made it.
std::vector<std::pair<std::string, std::string>> environment_texts(const DiffSide& side) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const char* key : {"versions", "machine"}) {
    if (!side.state.is_object()) break;
    const json facts = side.state.value(key, json::object());
    for (const auto& [name, value] : facts.items()) {
      texts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return texts;
}

/// Sets of data of which both sides know what they hold, and which hold other values.
std::vector<std::string> changed_data(const DiffSide& a, const DiffSide& b) {
  if (!a.state.is_object() || !b.state.is_object()) return {};
  const json before = a.state.value("data", json::object()), now = b.state.value("data", json::object());
  std::vector<std::string> changed;
  for (const auto& [set, own] : before.items()) {
    if (!now.is_object() || !now.contains(set) || !own.is_object() || !now[set].is_object()) continue;
    const auto value = [&](const json& data, const char* key) { return data.value(key, json()); };
    const json counts[] = {value(own, "samples"), value(now[set], "samples")};
    if (counts[0] == counts[1] && value(own, "digest") == value(now[set], "digest")) continue;
    const std::string what = counts[0] == counts[1] ? counts[0].dump() + " samples hold other values"
                                                    : counts[0].dump() + " samples are now " + counts[1].dump();
    changed.push_back("dataset." + set + ": " + what);
  }
  return changed;
}

std::string kind_word(DiffSide::Kind kind) {
  constexpr std::array kWords = {"recipe", "run", "checkpoint"};
  return kWords[static_cast<size_t>(kind)];
}

std::string changed_key_text(const RunDiff::Change& change) {
  const char* mark = change.kind == RecipeChange::Kind::kAdded     ? "+ "
                     : change.kind == RecipeChange::Kind::kRemoved ? "- "
                                                                   : "  ";
  return mark + change.path;
}

std::string changed_value_text(const RunDiff::Change& change, bool& cut) {
  constexpr size_t kMost = 60;
  const auto text = [&](const Value& value) {
    const std::string whole = value_text(value);
    const std::string shown = shortened(whole, kMost);
    cut = cut || shown != whole;
    return shown;
  };
  if (change.kind == RecipeChange::Kind::kAdded) return text(change.now);
  if (change.kind == RecipeChange::Kind::kRemoved) return text(change.before);
  return text(change.before) + " → " + text(change.now);
}

/// A heading and a line for each change of one effect; "" where there is none.
std::string group_text(const RunDiff& diff, RecipeChange::Effect effect, const std::string& heading, size_t width,
                       bool& cut) {
  using Align = TextTable::Align;
  TextTable table({Align::kLeft, Align::kLeft, Align::kLeft});
  bool any = false;
  for (const RunDiff::Change& change : diff.changes) {
    if (change.effect != effect) continue;
    any = true;
    table.add({changed_key_text(change), changed_value_text(change, cut), change.why});
  }
  return any ? "\n" + heading + "\n" + table.to_string("  ", width) : "";
}

std::string rows_text(const std::string& heading, const std::vector<RunDiff::Row>& rows, size_t width) {
  using Align = TextTable::Align;
  if (rows.empty()) return "";
  TextTable table({Align::kLeft, Align::kLeft, Align::kLeft});
  table.add({heading, "a", "b"});
  for (const RunDiff::Row& row : rows) {
    table.add({(row.differs ? "* " : "  ") + row.name, row.a.empty() ? "-" : row.a, row.b.empty() ? "-" : row.b});
  }
  return "\n" + table.to_string("", width);
}

nlohmann::ordered_json side_json(const DiffSide& side) {
  nlohmann::ordered_json json = {{"path", side.path}, {"kind", kind_word(side.kind)}};
  if (side.step) json["step"] = *side.step;
  return json;
}

nlohmann::ordered_json rows_json(const std::vector<RunDiff::Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RunDiff::Row& row : rows) {
    list.push_back({{"name", row.name}, {"a", row.a}, {"b", row.b}, {"differs", row.differs}});
  }
  return list;
}

}  // namespace

bool RunDiff::is_equal() const {
  const auto differs = [](const Row& row) { return row.differs; };
  return changes.empty() && data.empty() && std::ranges::none_of(controls, differs) &&
         std::ranges::none_of(figures, differs) && std::ranges::none_of(environment, differs);
}

bool RunDiff::breaks_resume() const {
  return !data.empty() || std::ranges::any_of(changes, [](const Change& change) { return change.breaks_resume(); });
}

DiffSide read_side(const std::string& path, Catalog& catalog) {
  DiffSide side;
  side.path = path;
  if (!fs::exists(path)) throw Error(path + ": there is no recipe, run or checkpoint of this name");
  if (!fs::is_directory(path)) {
    side.recipe = load_recipe(path, {}, catalog, InitialWeights::kUnneeded).resolved;
  } else if (fs::exists(fs::path(path) / "model.safetensors")) {
    side.kind = DiffSide::Kind::kCheckpoint;
    side.recipe = recipe_of_run(find_trained(path).recipe);
    side.state = state_of(path);
    side.step = side.state.at("step").get<int64_t>();
    side.figures = figures_of(side.state);
    side.controls = changes_from(side.state.value("changes", json::array()));
  } else if (holds_run(path)) {
    side.kind = DiffSide::Kind::kRun;
    side.recipe = recipe_of_run(path + "/recipe.yaml");
    side.run = read_run(path, catalog);
    side.state = side.run->state_json;
    side.step = side.run->step;
    side.figures = side.run->evaluation;
    side.controls = changes_of_run(path, side.state);
  } else {
    throw Error(path +
                " is neither a recipe, nor a run's folder (recipe.yaml, log.txt), nor a checkpoint's "
                "(model.safetensors)");
  }
  return side;
}

RunDiff compare_sides(DiffSide a, DiffSide b, const Catalog& catalog) {
  RunDiff diff;
  const auto decides = evaluation_decides(b.recipe, catalog);
  if (!decides) {
    diff.notes.emplace_back(
        "the scheduler of b is not known here (a plugin's?): it is taken not to watch the evaluations");
  }
  for (RecipeChange& change : changes_between(a.recipe, b.recipe, decides.value_or(false), Lists::kAligned)) {
    RunDiff::Change explained{std::move(change), ""};
    explained.why = reason_for(explained);
    diff.changes.push_back(std::move(explained));
  }
  diff.data = changed_data(a, b);
  const bool both_trained = a.kind != DiffSide::Kind::kRecipe && b.kind != DiffSide::Kind::kRecipe;
  if (both_trained) {
    diff.controls = joined_rows(control_texts(a), control_texts(b));
    diff.figures = joined_rows(figure_texts(a), figure_texts(b));
    diff.environment = joined_rows(environment_texts(a), environment_texts(b));
    for (const DiffSide* side : {&a, &b}) {
      if (side->run) diff.notes.insert(diff.notes.end(), side->run->notes.begin(), side->run->notes.end());
      if (!side->state.is_object())
        diff.notes.push_back(side->path + " has no checkpoint: its environment is not known");
    }
  }
  diff.a = std::move(a);
  diff.b = std::move(b);
  return diff;
}

std::string to_text(const RunDiff& diff, size_t width) {
  using Effect = RecipeChange::Effect;
  const auto side = [](const char* name, const DiffSide& one) {
    return std::string(name) + ": " + one.path + " (" + kind_word(one.kind) +
           (one.step ? ", step " + grouped(*one.step) : "") + ")\n";
  };
  std::string text = side("a", diff.a) + side("b", diff.b);
  bool cut = false;
  text += group_text(diff, Effect::kNone, "changes no number", width, cut);
  text += group_text(diff, Effect::kLength,
                     "changes how long it goes on: a resume goes on, and what is scheduled by the length is stretched",
                     width, cut);
  text +=
      group_text(diff, Effect::kNumbers, "changes numbers, and breaks a resume: it would be another run", width, cut);
  if (!diff.data.empty()) {
    text += "\nthe data differ, which breaks a resume unless checkpoint.allow_changed has data\n";
    for (const std::string& line : diff.data) text += "  " + line + "\n";
  }
  text += rows_text("changed by trainrun ctl", diff.controls, width);
  text += rows_text("figures", diff.figures, width) + rows_text("environment", diff.environment, width);
  if (cut) text += "\n… stands for what is cut; --json shows all\n";
  for (const std::string& note : diff.notes) text += "\nnote: " + note + "\n";
  if (diff.is_equal()) text += "\nnothing differs\n";
  return text;
}

nlohmann::ordered_json to_json(const RunDiff& diff) {
  constexpr std::array kEffects = {"none", "length", "numbers"};
  constexpr std::array kKinds = {"changed", "added", "removed"};
  nlohmann::ordered_json json = {{"a", side_json(diff.a)},
                                 {"b", side_json(diff.b)},
                                 {"equal", diff.is_equal()},
                                 {"breaks_resume", diff.breaks_resume()},
                                 {"changes", nlohmann::ordered_json::array()}};
  for (const RunDiff::Change& change : diff.changes) {
    nlohmann::ordered_json one = {{"path", change.path},
                                  {"kind", kKinds[static_cast<size_t>(change.kind)]},
                                  {"effect", kEffects[static_cast<size_t>(change.effect)]},
                                  {"before", value_text(change.before)},
                                  {"now", value_text(change.now)}};
    if (!change.why.empty()) one["why"] = change.why;
    json["changes"].push_back(std::move(one));
  }
  json["data"] = diff.data;
  json["controls"] = rows_json(diff.controls);
  json["figures"] = rows_json(diff.figures);
  json["environment"] = rows_json(diff.environment);
  json["notes"] = diff.notes;
  return json;
}

}  // namespace trainrun
