#pragma once

#include <functional>
#include <memory>
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

/// The first set of evaluation data, with what the run has learnt of its own.
std::unique_ptr<Dataset> open_evaluated(TrainedRun& run);

/// Calls `take` with the model's first output for each batch of `data`, of `size` samples, in their order, as an evaluation
/// makes it: callbacks take part, the averaged weights of EMA, test-time augmentation.
void for_each_output(TrainedRun& run, const Dataset& data,
                     const std::function<void(const at::Tensor& output, int64_t size)>& take);

/// Calls `take` for each image in the folder `path` and the folders below it, in the order of their paths; for each row
/// of the file `path` of texts, which has the text columns of the run's own; or, where it is not given, for each sample
/// of the first set of evaluation data. Images and texts are read as that set reads its own. Callbacks take part as in
/// an evaluation: the averaged weights of EMA, test-time augmentation. `begin` is called before, with the classes.
/// Throws Error where the model is not a classifier, or the data do not fit it.
void predict(TrainedRun& run, const std::optional<std::string>& path,
             const std::function<void(const PredictedClasses&)>& begin,
             const std::function<void(const Prediction&)>& take);

}  // namespace trainrun
