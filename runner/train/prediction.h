#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/train/evaluation.h"

namespace trainrun {

/// What a classifier says of one sample.
struct Prediction {
  std::string sample;  // the image's file, the line of the text's file, or the sample's number in the data set
  size_t label = 0;    // the most probable class
  std::vector<double> probabilities;
};

struct PredictedClasses {
  std::vector<std::string> names;  // those of the training data, where they can be read; else numbers
};

/// Calls `take` for each image in the folder `path` and the folders below it, in the order of their paths; for each row
/// of the file `path` of texts, which has the text columns of the run's own; or, where it is not given, for each sample
/// of the first set of evaluation data. Images and texts are read as that set reads its own. Callbacks take part as in
/// an evaluation: the averaged weights of EMA, test-time augmentation. `begin` is called before, with the classes.
/// Throws Error where the model is not a classifier, or the data do not fit it.
void predict(TrainedRun& run, const std::optional<std::string>& path,
             const std::function<void(const PredictedClasses&)>& begin,
             const std::function<void(const Prediction&)>& take);

}  // namespace trainrun
