#include "runner/run/run_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/recipe/recipe_source.h"
#include "runner/run/checkpoint_state.h"
#include "runner/run/run_folder.h"
#include "runner/run/watched_figure.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMostSummaryBytes = uint64_t{64} << 20;
constexpr std::array kSigns = {".lock", "log.txt", "metrics.jsonl", "summary.json", "checkpoints"};

std::optional<MetricLine> metric_line(const std::string& text) {
  const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* key) { return line.contains(key) && line[key].is_number(); };
  if (!line.is_object() || !number("step") || !number("epoch") || !number("time")) return std::nullopt;
  MetricLine found{line["step"], line["epoch"], line["time"], line.value("split", json()) == "eval", {}};
  for (const auto& [key, value] : line.items()) {
    if (key.find('/') == std::string::npos) continue;
    found.figures.emplace_back(key, value.is_number() ? value.get<double>() : NAN);
  }
  return found;
}

std::optional<double> figure_of(const Figures& figures, const std::string& name) {
  const auto found = std::find_if(figures.begin(), figures.end(), [&](const auto& one) { return one.first == name; });
  return found == figures.end() ? std::nullopt : std::optional(found->second);
}

/// What comes after "2026-11-26 01:18:24.794 [rank 0] " in a line of log.txt; "" where it is none.
std::string said_in(const std::string& line) {
  constexpr std::string_view kMark = "] ";
  const size_t at = line.find(kMark);
  return line.find("[rank ") == std::string::npos || at == std::string::npos ? "" : line.substr(at + kMark.size());
}

/// The step that a line of the console's tells as done: "step 30/180 loss …", "stopped by SIGTERM at step 31/180 …".
std::optional<int64_t> told_step(const std::string& said) {
  constexpr std::string_view kStep = "step ";
  const size_t at = said.find(kStep);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view before = std::string_view(said).substr(0, at);
  const bool is_done = before.empty() || before == "eval " || before == "resumed at " ||
                       before == "error: stopped at " || before.starts_with("stopped by ");
  int64_t step = 0;
  const char* end_of_line = said.data() + said.size();
  const auto [end, fault] = std::from_chars(said.data() + at + kStep.size(), end_of_line, step);
  if (!is_done || fault != std::errc() || end == end_of_line || *end != '/') return std::nullopt;
  return step;
}

/// How the last start of a run ended, and how far it came, as log.txt says it.
void read_end(RunRecord& run) {
  constexpr std::streamoff kMost = 1 << 16;
  run.why = "killed";
  const std::string path = run.path + "/log.txt";
  if (!fs::is_regular_file(path)) return;
  std::ifstream log(path, std::ios::binary);
  if (!log) throw ReadError(path, "open", errno);
  log.seekg(0, std::ios::end);
  const std::streamoff size = log.tellg();
  log.seekg(std::max<std::streamoff>(0, size - kMost));
  for (std::string line; std::getline(log, line);) {
    const std::string said = said_in(line);
    const auto after = [&](std::string_view begin) { return said.substr(begin.size()); };
    if (said.find(", effective batch ") != std::string::npos) run.step.reset();  // another start, perhaps from nothing
    if (const auto step = told_step(said)) run.step = std::max(run.step.value_or(0), *step);
    if (said.starts_with("error: ")) {
      const bool goes_on = run.state == RunRecord::State::kFailed;  // with how far the run had come
      run.state = RunRecord::State::kFailed;
      if (!goes_on) run.why = after("error: ");
    } else if (said.starts_with("stopped by ")) {
      run.state = RunRecord::State::kStopped;
      run.why = after("stopped by ").substr(0, after("stopped by ").find(' '));
    } else if (!said.empty() && !said.starts_with("weights ") && !said.starts_with("best weights ")) {
      run.state = RunRecord::State::kStopped;  // it said something since: another start
      run.why = "killed";
    }
  }
}

void read_summary(RunRecord& run) {
  const std::string path = run.path + "/summary.json";
  if (!fs::exists(path)) return;
  run.summary = json::parse(read_file(path, kMostSummaryBytes), nullptr, /*allow_exceptions=*/false);
  if (!run.summary.is_object()) throw DataError(path + ": this is not a summary of a run, a JSON object");
  run.state = RunRecord::State::kFinished;
  const auto number = [&](const char* key) { return run.summary.contains(key) && run.summary[key].is_number(); };
  if (number("step")) run.step = run.summary["step"].get<int64_t>();
  if (number("seconds")) run.seconds = run.summary["seconds"].get<double>();
  if (number("folds")) run.folds = run.summary["folds"].get<int64_t>();
  if (const json why = run.summary.value("stopped", json()); why.is_string()) run.why = why;
  const json metrics = run.summary.value("metrics", json::object());
  for (const auto& [name, value] : metrics.items()) {
    run.evaluation.emplace_back(name, value.is_number() ? value.get<double>() : NAN);
  }
}

/// What the newest checkpoint says, for runs whose metrics are logged elsewhere, and of the machine.
void read_newest_state(RunRecord& run) {
  const std::string path = run.path + "/checkpoints/latest/state.json";
  if (!fs::exists(path)) return;
  try {
    run.state_json = parse_checkpoint_state(read_file(path, kMostStateBytes)).content;
    const auto step = run.state_json.at("step").get<int64_t>();
    const bool is_newest = run.step.value_or(-1) < step;
    if (is_newest) run.step = step;
    if (is_newest || !run.seconds) run.seconds = run.state_json.at("seconds").get<double>();
    if (is_newest || !run.epoch) run.epoch = run.state_json.at("epoch").get<int64_t>();
  } catch (const std::exception& error) {  // the rest of the run can be told all the same
    run.notes.emplace_back(error.what());
  }
}

void read_metrics(RunRecord& run, const WatchedFigure& watched, const TakeMetricLine& also) {
  const bool counts_summary = run.state == RunRecord::State::kFinished;
  Figures last;
  const int64_t unread = for_each_metric_line(run.path, [&](const MetricLine& line) {
    if (also) also(line);
    run.epoch = line.epoch;
    if (!counts_summary) run.step = std::max(run.step.value_or(0), line.step);
    if (!counts_summary) run.seconds = line.seconds;
    if (!line.is_evaluation) {
      if (const auto loss = figure_of(line.figures, "train/loss")) run.loss = loss;
      return;
    }
    last = line.figures;
    const auto value = figure_of(line.figures, watched.name);
    if (!value || std::isnan(*value)) return;
    const bool is_better =
        !run.best || !watched.better || Monitored{watched.name, *watched.better}.is_better(*value, run.best->value);
    if (is_better) run.best = RunRecord::Best{watched.name, *value, line.step, !watched.better};
  });
  if (!last.empty()) run.evaluation = last;
  if (unread > 0) {
    run.notes.push_back(
        run.path + "/metrics.jsonl: " +
        counted(unread, "line cannot be read, and is left out", "lines cannot be read, and are left out"));
  }
}

/// What is known of the watched figure where metrics.jsonl does not have it.
void take_saved_best(RunRecord& run, const WatchedFigure& watched) {
  if (run.best) return;
  if (const auto value = figure_of(run.evaluation, watched.name)) {
    run.best = RunRecord::Best{watched.name, *value, std::nullopt, true};
  }
  if (!run.state_json.is_object()) return;
  const json& best = run.state_json.value("best", json());
  const json& monitor = run.state_json.value("monitor", json());
  if (best.is_number() && monitor.is_array() && monitor.size() == 2 && monitor[0] == watched.name) {
    run.best = RunRecord::Best{watched.name, best.get<double>(), std::nullopt, false};
  }
}

int64_t last_change(const std::string& folder) {
  int64_t newest = 0;
  for (const char* name : {"recipe.yaml", "log.txt", "metrics.jsonl", "summary.json", "checkpoints"}) {
    struct stat status{};
    if (::stat((folder + "/" + name).c_str(), &status) == 0) newest = std::max<int64_t>(newest, status.st_mtime);
  }
  return newest;
}

class Search {
 public:
  explicit Search(const Catalog& catalog) : catalog_(catalog) {}

  /// Whether there is a run in the folder or below it.
  bool look_into(const fs::path& folder, bool is_top) {
    bool any = false;
    if (holds_run(folder.string())) {
      any = true;
      add(folder.string());
    }
    std::vector<fs::path> below;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      std::error_code unknown;
      const bool is_folder = it->is_directory(unknown) && !it->is_symlink(unknown);
      if (is_folder && !(any && it->path().filename() == "checkpoints")) below.push_back(it->path());
    }
    if (error && is_top) throw ReadError(folder.string(), "look into the folder", error.value());
    if (error) found.damaged.push_back(folder.string() + ": cannot look into the folder: " + error.message());
    std::sort(below.begin(), below.end());
    std::vector<std::string> foreign;
    for (const fs::path& one : below) {
      if (look_into(one, false)) {
        any = true;
      } else {
        foreign.push_back(one.string());
      }
    }
    // A folder in which there is no run is told as one; what lies in a run's folder besides is its own affair.
    if (any && !holds_run(folder.string())) found.foreign.insert(found.foreign.end(), foreign.begin(), foreign.end());
    if (is_top && !any) found.foreign.insert(found.foreign.end(), foreign.begin(), foreign.end());
    return any || error;
  }

  FoundRuns found;

 private:
  void add(const std::string& folder) {
    try {
      found.runs.push_back(read_run(folder, catalog_));
    } catch (const Error& error) {
      const std::string message = error.what();
      found.damaged.push_back(message.substr(0, message.find('\n')));
    }
  }

  const Catalog& catalog_;
};

}  // namespace

int64_t for_each_metric_line(const std::string& run, const TakeMetricLine& take) {
  const std::string path = run + "/metrics.jsonl";
  if (!fs::is_regular_file(path)) return 0;
  std::ifstream lines(path, std::ios::binary);
  if (!lines) throw ReadError(path, "open", errno);
  int64_t unread = 0;
  for (std::string text; std::getline(lines, text);) {
    if (lines.eof() && text.empty()) break;
    const auto line = metric_line(text);
    if (line) {
      take(*line);
    } else if (!lines.eof()) {  // the last one may be about to be written
      ++unread;
    }
  }
  if (lines.bad()) throw ReadError(path, "read", errno);
  return unread;
}

std::string state_word(RunRecord::State state) {
  constexpr std::array kWords = {"finished", "running", "stopped", "failed"};
  return kWords[static_cast<size_t>(state)];
}

bool holds_run(const std::string& folder) {
  std::error_code unreadable;
  if (!fs::exists(fs::path(folder) / "recipe.yaml", unreadable)) return false;
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](const char* sign) { return fs::exists(fs::path(folder) / sign, unreadable); });
}

RunRecord read_run(const std::string& folder, const Catalog& catalog, const TakeMetricLine& also) {
  const std::string recipe = folder + "/recipe.yaml";
  RunRecord run;
  run.path = folder;
  ResolvedRecipe resolved = resolve_recipe(recipe, {});
  if (!resolved.value.is_map()) {
    if (!resolved.unreadable.empty()) throw Error(resolved.unreadable);
    throw Error(resolved.problems.empty() ? recipe + ": this is not a recipe" : resolved.problems[0].to_string());
  }
  run.recipe = std::move(resolved.value);
  const Value* name = run.recipe.find("name");
  run.name = name && name->is_scalar() ? name->text() : fs::path(folder).filename().string();
  run.changed = last_change(folder);
  const bool is_held = is_run_in_use(folder);  // before the summary, which it writes last
  read_summary(run);
  if (run.state != RunRecord::State::kFinished) read_end(run);
  if (run.state != RunRecord::State::kFinished && is_held) {
    run.state = RunRecord::State::kRunning;
    run.why.clear();
  }
  const WatchedFigure watched = watched_figure(run.recipe, catalog);
  read_metrics(run, watched, also);
  read_newest_state(run);
  take_saved_best(run, watched);
  return run;
}

FoundRuns find_runs(const std::string& folder, const Catalog& catalog) {
  Search search(catalog);
  search.look_into(folder, /*is_top=*/true);
  std::sort(search.found.runs.begin(), search.found.runs.end(),
            [](const RunRecord& a, const RunRecord& b) { return a.path < b.path; });
  return std::move(search.found);
}

}  // namespace trainrun
