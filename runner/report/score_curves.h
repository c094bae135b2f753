#pragma once

#include <utility>
#include <vector>

namespace trainrun {

/// Points of a curve, and the figure that sums it up.
struct ScoreCurve {
  std::vector<std::pair<double, double>> points;
  double figure = 0;
};

/// A score, and whether what it is for is there.
using Scored = std::vector<std::pair<double, bool>>;

/// False positive rate, true positive rate over all thresholds; the area below. NaN where all are, or none is, positive.
/// As scikit-learn's roc_curve and roc_auc_score.
ScoreCurve roc_curve(Scored scored);
/// Recall, precision; the average precision. As scikit-learn's precision_recall_curve and average_precision_score.
ScoreCurve precision_recall_curve(Scored scored);
/// Of so many bins of equal width, those that are not empty: the mean score, the share of what is there; the expected
/// calibration error (Naeini et al. 2015): the mean distance of the two over the samples.
ScoreCurve calibration_curve(const Scored& scored, size_t bins = 15);

/// At most `most` of the points, evenly spread by their numbers, the first and the last among them.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points, size_t most);

}  // namespace trainrun
