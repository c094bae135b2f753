#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trainrun {

struct DataSurveyOptions {
  int64_t shown = 24;        // samples of each set
  int64_t measured = 2000;   // of each set, for means and deviations
  int64_t compared = 50000;  // of each set, whether they are alike
};

/// One set of data as it reaches the model, through its transforms.
struct SurveyedSet {
  /// The numbers of a channel or a column.
  struct Column {
    std::string name;  // "image: red", "age"
    double mean = 0, deviation = 0, least = 0, most = 0;
    int64_t not_finite = 0;
  };
  struct ClassCount {
    std::string name;
    int64_t count = 0;
  };
  struct Sample {
    std::string place;  // its file, or its number
    std::string label;
    at::Tensor input;  // without the batch
  };

  std::string name;  // "train", "eval", "eval/clean"
  int64_t samples = 0;
  int64_t measured = 0;
  std::vector<Column> columns;
  std::vector<ClassCount> classes;  // of the target; empty: it holds none
  std::string counted;              // "samples", "pixels"
  std::vector<Sample> shown;
};

/// What a recipe's model will see.
struct DataSurvey {
  std::string name;
  std::string path;
  std::vector<SurveyedSet> sets;
  std::vector<std::string> warnings;  // of what is suspicious
};

}  // namespace trainrun
