#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "registry/catalog.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {

/// How far the run of a trial has come, by what its folder keeps.
struct TrialProgress {
  bool is_finished = false;
  int64_t step = 0;              // of the newest checkpoint, or that it ended with
  double seconds = 0;            // of training, over all starts
  std::optional<double> figure;  // of a finished run; nothing where no evaluation gave it
  std::string why;               // what ended a finished run early, or ""
};

/// `metric`: the figure of a finished run is that of its last evaluation; where checkpoint.keep_best monitors it, of the
/// evaluation that is kept. No folder, or one in which no run began: step 0. Throws Error, DataError.
TrialProgress read_trial(const std::string& folder, const std::string& metric, const Catalog& catalog);

/// The figure of the last evaluation up to `step`, by metrics.jsonl; nothing where there was none.
std::optional<double> figure_at(const std::string& folder, const std::string& metric, int64_t step);

/// What makes two runs end alike: the digest of the resolved recipe, without its name and folder.
std::string digest_of(const Value& resolved);

/// Whether the run in `folder` is one of this recipe, as far as its length; false where there is none.
bool is_folder_of(const std::string& folder, const Value& resolved);

/// `output_dir=FOLDER`, as the command line of a run has it.
std::string output_override(const std::string& folder);

/// The trial that another one begins with, stopped after `step`: its newest checkpoint is of this step.
struct ForkSource {
  std::string folder;
  int64_t trial = 0;
  int64_t step = 0;
};
/// Makes `folder` that of a run of `recipe` that was stopped after the same step: files of checkpoints as further names of
/// the same ones, lines of metrics.jsonl up to the step, copies of what else loggers and callbacks keep. The folder appears whole or not at all. Throws Error, FileError.
void fork_trial(const ForkSource& source, const std::string& folder, const LoadedRecipe& recipe);
/// The trial and the step that the run in a folder begins with; nothing where it began by itself.
std::optional<std::pair<int64_t, int64_t>> origin_of(const std::string& folder);

}  // namespace trainrun
