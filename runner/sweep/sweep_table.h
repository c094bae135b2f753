#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runner/sweep/sweep_state.h"

namespace trainrun {

/// The trials of a sweep, side by side.
struct SweepTable {
  struct Row {
    SweepTrial trial;
    std::string folder;
    int64_t steps_trained = 0;  // by itself, without those that it began with
  };
  struct Importance {
    std::string key;
    std::optional<double> explained;  // of the figures' variance
  };
  std::string folder;
  SweepFacts facts;
  std::vector<Row> rows;  // in the order in which they were chosen
  std::optional<size_t> best;
  std::vector<Importance> importance;
  int64_t num_points = 0;  // chosen so far; some may be one trial

  int64_t steps_trained() const;
  int64_t steps_shared() const;
  int64_t count(SweepTrial::State state) const;
  /// The command that trains the best trial again, in a folder of its own; "" where there is none.
  std::string best_command() const;
};

/// What the journal in `folder` says. Throws Error where there is none.
SweepTable read_sweep_table(const std::string& folder);
SweepTable make_sweep_table(const std::string& folder, const SweepState& state);

std::string to_text(const SweepTable& table);
nlohmann::ordered_json to_json(const SweepTable& table);

}  // namespace trainrun
