#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/figures.h"

namespace trainrun {

/// What the metric is called whose figures make a report: a ConfusionMatrix.
constexpr const char* kClassReport = "class_report";

/// How many samples of each class were taken for each, on one set of evaluation data; or, where each sample has several
/// labels, how often each label was there and was predicted.
struct ClassReport {
  std::string prefix;                   // "eval", "eval/clean"
  size_t classes = 0;                   // or labels
  std::vector<double> counts;           // [classes, classes]: label, prediction; of labels [classes, 2, 2]
  std::vector<std::string> names = {};  // of the classes; of another number than them: they have none
  bool has_labels = false;              // each sample has several

  struct Row {
    double precision, recall, f1, samples;
  };
  /// Of class `i`; 0 where nothing is divided by nothing, as in scikit-learn's classification_report.
  Row row(size_t i) const;
  /// Of labels: the averages that classification_report has, and what they are called. Samples: how often any is there.
  std::vector<std::pair<std::string, Row>> averages() const;
  double accuracy() const;
  /// "2", or "2 cat".
  std::string class_text(size_t i) const;
};

/// Takes the figures of the metric `kClassReport` out of `figures`: a report for each set.
std::vector<ClassReport> take_class_reports(Figures& figures);

/// Two tables; of labels one.
std::string to_text(const ClassReport& report);
nlohmann::ordered_json to_json(const ClassReport& report);

}  // namespace trainrun
