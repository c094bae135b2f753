#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/report/class_report.h"
#include "runner/report/score_curves.h"
#include "runner/report/surveyed_data.h"
#include "runner/train/evaluation.h"

namespace trainrun {

/// What a trained model says of one set of evaluation data, sample by sample.
struct SetEvaluation {
  /// A curve for a class or a label: its name and what sums it up.
  struct NamedCurve {
    std::string name;
    ScoreCurve curve;
  };
  /// Predicted numbers of one name beside the true ones, in the data's units.
  struct Numbers {
    std::string name;
    double rmse = 0, mae = 0, r2 = 0;
    std::vector<std::pair<double, double>> pairs;  // truth, prediction; thinned
  };
  /// A series of steps that was forecast.
  struct Forecast {
    std::string place;
    std::vector<double> truth, predicted;
  };
  struct Mistake {
    std::string place;
    std::string expected, said;  // "cat", "dog (98 %)"
    double badness = 0;          // the loss of a class; the absolute error of a number
    at::Tensor input;            // as the model reads it; undefined where there are tokens
    std::vector<SurveyedSet::TokenRow> rows;
    std::vector<std::string> columns;  // of a row of a table: what its numbers are called
  };

  std::string prefix;  // "eval", "eval/clean"
  int64_t samples = 0;
  int64_t drawn = 0;                   // pairs of numbers that are drawn of each name
  std::optional<ClassReport> classes;  // of classes, or of several labels
  std::vector<NamedCurve> roc, precision_recall;
  std::optional<ScoreCurve> calibration;
  std::vector<Numbers> numbers;
  std::vector<Forecast> forecasts;
  std::vector<Mistake> mistakes;  // the worst first
};

struct RunEvaluation {
  std::string checkpoint;
  std::vector<SetEvaluation> sets;
  std::vector<std::string> notes;
};

/// Has the model of `run` predict every set of its recipe's evaluation data, by its first loss. Throws Error where there
/// are none. What it cannot show of a model is a note.
RunEvaluation evaluate_samples(TrainedRun& run);

}  // namespace trainrun
