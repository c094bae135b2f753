#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "runner/train/progress.h"

namespace trainrun {

/// In a run's folder: a line for each change.
constexpr const char* kRecipeHistory = "recipe_history.jsonl";

/// As checkpoints and the history keep them.
nlohmann::json to_json(const RunChange& change);
/// Throws what nlohmann's library throws for what `to_json` does not write.
std::vector<RunChange> changes_from(const nlohmann::json& list);

/// "optimizer.lr of runs/b from 0.01 to 1e-4 after step 40"; without " of …" where `run` is "".
std::string change_text(const RunChange& change, const std::string& run = "");

/// The changes that the history in this folder has of steps after `step`.
std::vector<RunChange> later_changes(const std::string& folder, int64_t step);

/// All that were made in the run in this folder, in the order of its steps: those that its newest checkpoint's state.json
/// has (null: the run has no checkpoint of its own), and later ones of the history.
std::vector<RunChange> changes_of_run(const std::string& folder, const nlohmann::json& newest_state);

}  // namespace trainrun
