#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/train/evaluation.h"

namespace trainrun {

/// What a classifier says of one sample.
struct Prediction {
  std::string sample;  // the image's file, or the sample's number in the data set
  size_t label = 0;    // the most probable class
  std::vector<double> probabilities;
};

struct PredictedClasses {
  std::vector<std::string> names;  // those of the training data, where they can be read; else numbers
};

/// Calls `take` for each image in `folder` and the folders below it, in the order of their paths, or, where it is not
/// given, for each sample of the first set of evaluation data. Images are read as that set reads its own. Callbacks take
/// part as in an evaluation: the averaged weights of EMA, test-time augmentation. `begin` is called before, with the
/// classes. Throws Error where the model is not a classifier, or the images do not fit it.
void predict(TrainedRun& run, const std::optional<std::string>& folder,
             const std::function<void(const PredictedClasses&)>& begin,
             const std::function<void(const Prediction&)>& take);

}  // namespace trainrun
