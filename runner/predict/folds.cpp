#include "runner/predict/folds.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/signals.h"
#include "runner/loggers/loggers.h"
#include "runner/predict/fold_predictions.h"
#include "runner/run/recipe_file.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr uint64_t kMostBytes = uint64_t{64} << 20;  // of a summary

/// The figures of all folds by name, in the order of the first one's.
struct FoldFigures {
  std::vector<std::pair<std::string, std::vector<double>>> figures;
  double seconds = 0;

  void add(const ordered_json& summary) {
    seconds += summary.value("seconds", 0.0);
    for (const auto& [name, value] : summary.at("metrics").items()) {
      const auto is_same = [name = name](const auto& figure) { return figure.first == name; };
      auto found = std::find_if(figures.begin(), figures.end(), is_same);
      if (found == figures.end()) found = figures.insert(found, {name, {}});
      found->second.push_back(value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN());
    }
  }
};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Divided by their number.
double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

/// What summary.json says; each figure is logged.
ordered_json summary_of(const FoldFigures& folds, int64_t count) {
  ordered_json summary = {{"folds", count}, {"seconds", folds.seconds}, {"metrics", ordered_json::object()}};
  for (const auto& [name, values] : folds.figures) {
    summary["metrics"][name] = mean_of(values);
    summary["deviations"][name] = deviation_of(values);
    summary["of_folds"][name] = values;
    std::string each;
    for (const double value : values) each += (each.empty() ? "" : " ") + in_figures(value, 4);
    spdlog::info("eval of {} folds: {} {} ± {} ({})", values.size(), name, in_figures(mean_of(values), 4),
                 in_figures(deviation_of(values), 4), each);
  }
  return summary;
}

std::string folder_of_fold(const RunFolder& folder, int64_t fold) {
  return folder.path() + "/fold-" + std::to_string(fold);
}

}  // namespace

int train_folds(const LoadedRecipe& loaded, const FoldsTraining& training) {
  const int64_t count = *loaded.recipe.dataset.all_folds();
  RunFolder folder = open_run_folder(loaded, /*evaluation_counts=*/true);
  const auto log = [&] { start_log(folder.log_path(), training.quiet, training.verbose, folder.is_private()); };
  log();
  for (const std::string& note : folder.notes()) spdlog::info(note);
  std::vector<std::string> runs;
  for (int64_t fold = 0; fold < count; ++fold) {
    const std::string run = runs.emplace_back(folder_of_fold(folder, fold));
    if (fs::exists(run + "/summary.json")) {
      spdlog::info("fold {} of {} is finished: {}", fold, count, run);
      continue;
    }
    spdlog::info("fold {} of {}, from 0: {}", fold, count, run);
    std::vector<std::string> overrides = {"dataset.fold.index=" + std::to_string(fold),
                                          "output_dir=" + nlohmann::json(run).dump()};
    if (loaded.recipe.checkpoint.resume == "no") overrides.emplace_back("checkpoint.resume=auto");  // `folder` is new
    const int code = training.train(overrides);
    log();
    if (code != 0) return code;
  }
  if (const int signal = StopSignals::received()) return 128 + signal;
  FoldFigures figures;
  for (const std::string& run : runs) {
    figures.add(ordered_json::parse(read_file(run + "/summary.json", kMostBytes)));
  }
  try {
    predict_held_out(loaded, runs, training.catalog, folder.path());
  } catch (const Error& error) {
    spdlog::warn("there is no predictions.csv of the folds: {}", error.what());
  }
  const ordered_json summary = summary_of(figures, count);
  folder.finish(summary.dump(2) + "\n");
  return 0;
}

}  // namespace trainrun
