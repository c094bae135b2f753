#include "runner/train/run_change.h"

#include <spdlog/spdlog.h>

#include <fstream>

namespace trainrun {

nlohmann::json to_json(const RunChange& change) {
  return {{"step", change.step},     {"time", change.time},   {"key", change.key},
          {"before", change.before}, {"value", change.value}, {"of_recipe", change.of_recipe}};
}

std::vector<RunChange> changes_from(const nlohmann::json& list) {
  std::vector<RunChange> changes;
  for (const nlohmann::json& one : list) {
    changes.push_back({one.at("step"), one.value("time", int64_t{0}), one.at("key"), one.at("before"), one.at("value"),
                       one.at("of_recipe")});
  }
  return changes;
}

std::string change_text(const RunChange& change, const std::string& run) {
  return change.key + (run.empty() ? "" : " of " + run) + " from " + change.before + " to " + change.value +
         " after step " + std::to_string(change.step);
}

std::vector<RunChange> later_changes(const std::string& folder, int64_t step) {
  std::vector<RunChange> later;
  std::ifstream file(folder + "/" + kRecipeHistory);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
      for (RunChange& change : changes_from(nlohmann::json::array({object}))) {
        if (change.step > step) later.push_back(std::move(change));
      }
    } catch (const nlohmann::json::exception&) {
      spdlog::warn("{}/{}: a line is not that of a change, and is passed over: {}", folder, kRecipeHistory, line);
    }
  }
  return later;
}

std::vector<RunChange> changes_of_run(const std::string& folder, const nlohmann::json& newest_state) {
  if (!newest_state.is_object()) return later_changes(folder, 0);
  std::vector<RunChange> changes = changes_from(newest_state.value("changes", nlohmann::json::array()));
  for (RunChange& change : later_changes(folder, newest_state.at("step").get<int64_t>())) {
    changes.push_back(std::move(change));
  }
  return changes;
}

}  // namespace trainrun
