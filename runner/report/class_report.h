#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "registry/figures.h"

namespace trainrun {

/// What the metric is called whose figures make a report: a ConfusionMatrix.
constexpr const char* kClassReport = "class_report";

/// How many samples of each class were taken for each, on one set of evaluation data.
struct ClassReport {
  std::string prefix;  // "eval", "eval/clean"
  size_t classes = 0;
  std::vector<double> counts;           // [classes, classes]: label, prediction
  std::vector<std::string> names = {};  // of the classes; of another number than them: they have none

  struct Row {
    double precision, recall, f1, samples;
  };
  /// Of class `i`; 0 where nothing is divided by nothing, as in scikit-learn's classification_report.
  Row row(size_t i) const;
  double accuracy() const;
  /// "2", or "2 cat".
  std::string class_text(size_t i) const;
};

/// Takes the figures of the metric `kClassReport` out of `figures`: a report for each set.
std::vector<ClassReport> take_class_reports(Figures& figures);

/// Two tables.
std::string to_text(const ClassReport& report);
nlohmann::ordered_json to_json(const ClassReport& report);

}  // namespace trainrun
