#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "registry/catalog.h"
#include "registry/kinds/figures.h"
#include "registry/language/value.h"

namespace trainrun {

/// A line of metrics.jsonl. A figure that was not finite is NaN.
struct MetricLine {
  int64_t step = 0;
  int64_t epoch = 0;   // from 0
  double seconds = 0;  // of training so far
  bool is_evaluation = false;
  Figures figures;
};

using TakeMetricLine = std::function<void(const MetricLine&)>;

/// Calls `take` for each line of a run's metrics.jsonl, in order; returns how many lines could not be read. No file: no
/// line. Throws ReadError.
int64_t for_each_metric_line(const std::string& run, const TakeMetricLine& take);

/// What the folder of a run tells of it.
struct RunRecord {
  enum class State {
    kFinished,  // summary.json is there
    kRunning,   // a process holds the folder
    kStopped,   // by a signal, or it was killed; the same command resumes it
    kFailed,    // by an error
  };
  /// The figure by which its checkpoints are judged.
  struct Best {
    std::string name;  // "eval/accuracy"
    double value = 0;
    std::optional<int64_t> step;  // of the evaluation
    bool is_last = false;         // the newest value: which way it is better is not known
  };

  std::string path;  // of its folder
  std::string name;  // as its recipe says
  State state = State::kStopped;
  std::string why;  // "SIGTERM", "killed", an error's message; of a finished run: what ended it early, or ""
  std::optional<int64_t> step;
  std::optional<int64_t> epoch;   // of that step, from 0
  std::optional<double> seconds;  // of training, over all starts
  int64_t changed = 0;            // when anything was last written, in seconds of Unix's time
  std::optional<double> loss;     // the newest of training
  std::optional<Best> best;
  Figures evaluation;              // the last one
  std::optional<int64_t> folds;    // of a run that trained them all: how many
  Value recipe;                    // resolved
  nlohmann::json state_json;       // of the newest checkpoint; null: there is none
  nlohmann::json summary;          // null: it is not finished
  std::vector<std::string> notes;  // what of it could not be read
};

/// "finished", "running", "stopped", "failed"
std::string state_word(RunRecord::State state);

/// Whether a folder looks like that of a run.
bool holds_run(const std::string& folder);
/// Reads what a run left; changes nothing. `also` is called for each line of its metrics.jsonl, which is read once. Throws
/// Error where it has no recipe that can be read.
RunRecord read_run(const std::string& folder, const Catalog& catalog, const TakeMetricLine& also = {});

struct FoundRuns {
  std::vector<RunRecord> runs;       // by their paths
  std::vector<std::string> damaged;  // "runs/a/recipe.yaml:3:1: …"
  std::vector<std::string> foreign;  // folders that hold no run
};
/// The runs in `folder` and the folders below it. Links are not followed. Throws ReadError where it cannot be read.
FoundRuns find_runs(const std::string& folder, const Catalog& catalog);

}  // namespace trainrun
