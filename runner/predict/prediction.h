#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runner/predict/hub_data.h"
#include "runner/predict/outcome.h"
#include "runner/train/evaluation.h"

namespace trainrun {

class PredictionWriter;

enum class BrokenSamples { kError, kSkip };

struct PredictOptions {
  std::vector<std::string> data;  // files, folders, "-", those of the hub; none: the first set of evaluation data
  HubRows hub_rows;               // of data sets of the hub among them
  std::string format = "csv";     // csv, jsonl, conll, parquet, npz
  std::string output;             // the file to write; "": standard output
  OutcomeOptions outcome;
  std::optional<int64_t> batch_size;  // null: that of evaluations, or more where samples are small
  BrokenSamples broken = BrokenSamples::kError;
  nlohmann::json identity;  // of what else decides about the predictions, such as overrides of the recipe
};

struct PredictSummary {
  int64_t num_read = 0;               // samples
  int64_t num_written = 0;            // rows: of a forecast each step is one
  int64_t num_left_out = 0;           // of the samples, those that could not be read
  std::vector<std::string> left_out;  // why: the first ones
  int64_t num_not_finite = 0;         // numbers among the predictions
};

/// Writes what the model says of each sample. Callbacks take part as in an evaluation: the averaged weights of EMA,
/// test-time augmentation. Throws Error where the data do not fit the model, DataError for what cannot be read.
PredictSummary predict(TrainedRun& run, const PredictOptions& options);
/// The same, by a writer of the caller's, which is finished then.
PredictSummary predict(TrainedRun& run, const PredictOptions& options, PredictionWriter& writer);

}  // namespace trainrun
