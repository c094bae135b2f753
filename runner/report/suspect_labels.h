#pragma once

#include <optional>
#include <string>
#include <vector>

#include "registry/catalog.h"

namespace trainrun {

/// The samples of a run's training data whose losses stayed high: suspect labels, or samples that are hard.
struct SuspectLabels {
  struct One {
    int64_t number = 0;  // in the data set
    double mean = 0;     // of its losses in all epochs
    double last = 0;     // its loss in the last one
    std::string place;   // "train.csv:17"; "" where it is not known
    std::string label;   // as the data have it: a class's name, or a number; "" where it is not known
  };
  int64_t samples = 0;  // that have losses
  int64_t epochs = 0;   // over which they are the means
  double median = 0;    // of the means of all
  std::vector<One> highest;
  std::vector<std::string> notes;
};

/// Of what the callback SampleLosses left in the run's folder; nothing where there is nothing. The highest are a
/// twentieth of all, at most a hundred. Opens the training data to name places and labels; where they cannot be opened,
/// that is a note. Throws DataError for a damaged file.
std::optional<SuspectLabels> read_suspect_labels(const std::string& run, Catalog& catalog);

}  // namespace trainrun
