#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/unlabelled_data.h"
#include "runner/train/evaluation.h"

namespace trainrun {

/// What there is to predict for.
struct PredictedSource {
  std::vector<std::string> paths;  // "-": standard input; none: the first set of evaluation data
  int64_t begin = 0;               // samples that are passed over
  std::function<void(const std::string& fault)> broken = {};  // see UnlabelledSource
  bool are_others = false;  // without paths: whether the user named other evaluation data than the recipe's
};

/// Opens it, to be read as the run's training data were. Throws Error where the data are of a kind that has to be
/// labelled, or do not fit the model.
std::unique_ptr<UnlabelledData> open_predicted(TrainedRun& run, const PredictedSource& source);

/// What tells whether `paths` are the same data as before: their names, sizes and times.
nlohmann::json identity_of(const std::vector<std::string>& paths);

}  // namespace trainrun
