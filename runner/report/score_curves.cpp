#include "runner/report/score_curves.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace trainrun {
namespace {

/// Calls `at_threshold(true positives, false positives)` for each distinct score, the highest first.
template <class AtThreshold>
void for_each_threshold(Scored& scored, const AtThreshold& at_threshold) {
  std::ranges::sort(scored, std::greater<>(), [](const auto& one) { return one.first; });
  double right = 0, wrong = 0;
  for (size_t i = 0; i < scored.size(); ++i) {
    ++(scored[i].second ? right : wrong);
    if (i + 1 == scored.size() || scored[i + 1].first != scored[i].first) at_threshold(right, wrong);
  }
}

double count_positive(const Scored& scored) {
  return static_cast<double>(std::ranges::count_if(scored, [](const auto& one) { return one.second; }));
}

}  // namespace

ScoreCurve roc_curve(Scored scored) {
  const double positive = count_positive(scored);
  const double negative = static_cast<double>(scored.size()) - positive;
  ScoreCurve curve;
  if (positive == 0 || negative == 0) return {{}, NAN};
  curve.points.emplace_back(0, 0);
  for_each_threshold(scored, [&](double right, double wrong) {
    const auto [x, y] = curve.points.back();
    curve.points.emplace_back(wrong / negative, right / positive);
    curve.figure += (curve.points.back().first - x) * (curve.points.back().second + y) / 2;
  });
  return curve;
}

ScoreCurve precision_recall_curve(Scored scored) {
  const double positive = count_positive(scored);
  ScoreCurve curve;
  if (positive == 0) return {{}, NAN};
  curve.points.emplace_back(0, 1);
  for_each_threshold(scored, [&](double right, double wrong) {
    const double recall = right / positive, precision = right / (right + wrong);
    curve.figure += (recall - curve.points.back().first) * precision;
    curve.points.emplace_back(recall, precision);
  });
  return curve;
}

ScoreCurve calibration_curve(const Scored& scored, size_t bins) {
  std::vector<double> scores(bins, 0), there(bins, 0), counts(bins, 0);
  for (const auto& [score, is_there] : scored) {
    const double place = std::clamp(score, 0.0, 1.0) * static_cast<double>(bins);
    const size_t bin = std::min(bins - 1, static_cast<size_t>(place));
    scores[bin] += score;
    there[bin] += is_there ? 1 : 0;
    ++counts[bin];
  }
  ScoreCurve curve;
  for (size_t i = 0; i < bins; ++i) {
    if (counts[i] == 0) continue;
    curve.points.emplace_back(scores[i] / counts[i], there[i] / counts[i]);
    curve.figure += std::abs(scores[i] - there[i]) / static_cast<double>(scored.size());
  }
  return curve;
}

std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points, size_t most) {
  if (points.size() <= most) return points;
  std::vector<std::pair<double, double>> chosen;
  for (size_t i = 0; i < most; ++i) chosen.push_back(points[i * (points.size() - 1) / (most - 1)]);
  return chosen;
}

}  // namespace trainrun
