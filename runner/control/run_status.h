#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

#include "registry/kinds/figures.h"

namespace trainrun {

/// Where a run stands.
struct RunStatus {
  std::string name;
  std::string output_dir;
  std::string state = "starting";  // "training", "ended"
  int64_t pid = 0;
  int64_t step = 0;  // finished optimizer steps
  int64_t total_steps = 0;
  int64_t start_step = 0;  // that this process began with
  int64_t epoch = 0;
  int64_t saved_step = -1;                           // of the newest checkpoint of this process; -1: there is none
  double loss = 0;                                   // of `step`
  double seconds = 0;                                // since this process began to train
  double samples_per_second = 0;                     // by the newest line of the log
  double steps_per_second = 0;                       // since this process began to train
  int64_t memory = 0;                                // resident bytes of this process
  Figures training;                                  // of the newest line of the log
  Figures evaluation;                                // the last one
  nlohmann::json changes = nlohmann::json::array();  // that `set` made

  /// Seconds until the last step; below 0: not known.
  double seconds_left() const;
};

nlohmann::ordered_json to_json(const RunStatus& status);
/// In Prometheus' text format, version 0.0.4.
std::string prometheus_text(const RunStatus& status);

}  // namespace trainrun
