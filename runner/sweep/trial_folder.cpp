#include "runner/sweep/trial_folder.h"

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/language/interpolation.h"
#include "runner/recipe/recipe_source.h"
#include "runner/run/recipe_file.h"
#include "runner/run/run_folder.h"
#include "runner/run/run_identity.h"
#include "runner/run/run_record.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOrigin = "/origin.json";
constexpr uint64_t kMostOriginBytes = 1 << 16;

/// Whether the recipe keeps the checkpoint that is the best by `metric`.
bool keeps_best_by(const Value& recipe, const std::string& metric) {
  const Value* checkpoint = recipe.find("checkpoint");
  const Value* keep_best = checkpoint ? checkpoint->find("keep_best") : nullptr;
  const Value* monitor = keep_best ? keep_best->find("monitor") : nullptr;
  const std::string monitored = monitor && monitor->is_scalar() ? monitor->text() : "eval/loss";
  return keep_best && keep_best->is_map() && monitored == metric;
}

/// The files below `from` get the same names below `to`; links stay links. On a file system that has no further names for
/// a file, they are copied.
void link_files(const fs::path& from, const fs::path& to) {
  create_folders(to.string());
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    const std::string name = entry.path().filename().string();
    if (name.find(kTemporaryMark) != std::string::npos) continue;
    if (entry.is_symlink()) {
      fs::copy_symlink(entry.path(), target);
    } else if (entry.is_directory()) {
      link_files(entry.path(), target);
    } else {
      std::error_code cannot;
      fs::create_hard_link(entry.path(), target, cannot);
      if (cannot) fs::copy_file(entry.path(), target);
    }
  }
  sync_folder(to.string());
}

/// What loggers and callbacks keep beside the checkpoints (metrics.csv, TensorBoard's events, losses of samples). They add
/// to it in place, so it is copied. `parent` was stopped at the step at which the other begins: there is nothing later.
void copy_records(const fs::path& parent, const fs::path& to) {
  constexpr std::array kOwn = {"recipe.yaml", "log.txt", "summary.json", "checkpoints", ".lock", "metrics.jsonl"};
  for (const fs::directory_entry& entry : fs::directory_iterator(parent)) {
    const std::string name = entry.path().filename().string();
    const bool is_own = std::ranges::find(kOwn, name) != kOwn.end() || "/" + name == kOrigin;
    const bool is_record = !entry.is_symlink() && (entry.is_regular_file() || entry.is_directory());
    if (is_own || !is_record || name.find(kTemporaryMark) != std::string::npos) continue;
    fs::copy(entry.path(), to / name, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
}

void write_recipe_into(const std::string& folder, const LoadedRecipe& loaded) {
  const RunFolder::RecipeFile file = recipe_file(loaded);
  const std::string path = folder + "/recipe.yaml";
  FileWriter writer(path);
  if (file.is_private && ::chmod(path.c_str(), S_IRUSR | S_IWUSR) < 0) throw FileError(path, "make it private", errno);
  writer.write(file.text);
  writer.finish();
}

}  // namespace

TrialProgress read_trial(const std::string& folder, const std::string& metric, const Catalog& catalog) {
  TrialProgress progress;
  if (!holds_run(folder)) return progress;
  const RunRecord run = read_run(folder, catalog);
  progress.is_finished = run.state == RunRecord::State::kFinished;
  progress.seconds = run.seconds.value_or(0);
  if (run.state_json.is_object()) progress.step = run.state_json.value("step", int64_t{0});
  if (!progress.is_finished) return progress;
  progress.step = run.step.value_or(progress.step);
  progress.why = run.why;
  const auto found = std::ranges::find(run.evaluation, metric, &Figures::value_type::first);
  if (found != run.evaluation.end()) progress.figure = found->second;
  if (keeps_best_by(run.recipe, metric) && run.best && run.best->name == metric) progress.figure = run.best->value;
  return progress;
}

std::optional<double> figure_at(const std::string& folder, const std::string& metric, int64_t step) {
  std::optional<double> figure;
  for_each_metric_line(folder, [&](const MetricLine& line) {
    if (!line.is_evaluation || line.step > step) return;
    const auto found = std::ranges::find(line.figures, metric, &Figures::value_type::first);
    if (found != line.figures.end()) figure = found->second;
  });
  return figure;
}

std::string digest_of(const Value& resolved) {
  Value own = resolved;
  for (const char* key : {"name", "output_dir"}) own.erase(key);
  return sha256(resolved_text(own));
}

bool is_folder_of(const std::string& folder, const Value& resolved) {
  if (!holds_run(folder)) return false;
  const ResolvedRecipe other = resolve_recipe(folder + "/recipe.yaml", {});
  if (!other.value.is_map() || !other.problems.empty()) return false;
  const auto changes = changes_between(other.value, resolved, /*evaluation_counts=*/true, Lists::kByPosition);
  return std::ranges::all_of(changes,
                             [](const RecipeChange& change) { return change.effect == RecipeChange::Effect::kNone; });
}

std::string output_override(const std::string& folder) {
  const nlohmann::json text = escape_references(folder);  // as YAML has a text in quotes
  return "output_dir=" + text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void fork_trial(const ForkSource& source, const std::string& folder, const LoadedRecipe& recipe) {
  const std::string unfinished = temporary_path(folder);
  try {
    remove_all(unfinished);
    create_folders(unfinished);
    link_files(source.folder + "/checkpoints", unfinished + "/checkpoints");
    copy_records(source.folder, unfinished);
    const std::string metrics = "/metrics.jsonl";
    if (fs::exists(source.folder + metrics)) {
      fs::copy_file(source.folder + metrics, unfinished + metrics);
      truncate_metrics(unfinished + metrics, source.step);
    }
    write_recipe_into(unfinished, recipe);
    const nlohmann::json origin = {{"trial", source.trial}, {"step", source.step}};
    write_file_atomically(unfinished + kOrigin, origin.dump() + "\n");
    sync_folder(unfinished);
    rename_path(unfinished, folder);
    sync_folder(fs::path(folder).parent_path().string());
  } catch (const fs::filesystem_error& error) {
    throw FileError(unfinished, "copy what " + source.folder + " keeps", error.code().value());
  }
}

std::optional<std::pair<int64_t, int64_t>> origin_of(const std::string& folder) {
  if (!fs::exists(folder + kOrigin)) return std::nullopt;
  const auto origin = nlohmann::json::parse(read_file(folder + kOrigin, kMostOriginBytes), nullptr, false);
  const bool is_whole = origin.is_object() && origin.contains("trial") && origin.contains("step") &&
                        origin["trial"].is_number_integer() && origin["step"].is_number_integer();
  if (!is_whole) throw DataError(folder + kOrigin + ": this does not say which trial's steps the run begins with");
  return std::pair(origin["trial"].get<int64_t>(), origin["step"].get<int64_t>());
}

}  // namespace trainrun
