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

/// The changes that the history in this folder has of steps after `step`.
std::vector<RunChange> later_changes(const std::string& folder, int64_t step);

}  // namespace trainrun
