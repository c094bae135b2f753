#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <tuple>

#include "registry/metrics/accumulators.h"
#include "registry/metrics/class_scores.h"

// Metrics of how well scores order the samples. They need every sample's scores, which they gather.

namespace trainrun {
namespace {

/// A point of the curve for each distinct score, by falling score: how many samples have it or more.
struct Curve {
  std::vector<double> positives;
  std::vector<double> negatives;
};

Curve curve_of(const at::Tensor& scores, const at::Tensor& is_positive) {
  const auto [sorted, order] = scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const std::vector<double> values = numbers_of(sorted);
  const std::vector<double> positive = numbers_of(is_positive.index_select(0, order));
  Curve curve;
  double positives = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    positives += positive[i];
    if (i + 1 < values.size() && values[i + 1] == values[i]) continue;
    curve.positives.push_back(positives);
    curve.negatives.push_back(static_cast<double>(i + 1) - positives);
  }
  return curve;
}

/// Area under the ROC curve, by trapezoids; NaN without positives or without negatives.
struct RocArea {
  static double of(const Curve& curve) {
    double area = 0, positives = 0, negatives = 0;
    for (size_t i = 0; i < curve.positives.size(); ++i) {
      area += (curve.negatives[i] - negatives) * (curve.positives[i] + positives) / 2;
      positives = curve.positives[i];
      negatives = curve.negatives[i];
    }
    return positives == 0 || negatives == 0 ? NAN : area / (positives * negatives);
  }
};

/// Sum of (R_i - R_{i-1}) P_i over the scores, as scikit-learn's average_precision_score; NaN without positives.
struct PrecisionArea {
  static double of(const Curve& curve) {
    double area = 0, positives = 0;
    for (size_t i = 0; i < curve.positives.size(); ++i) {
      area += (curve.positives[i] - positives) * curve.positives[i] / (curve.positives[i] + curve.negatives[i]);
      positives = curve.positives[i];
    }
    return positives == 0 ? NAN : area / positives;
  }
};

template <class Area>
struct RankingMetric : ProbabilityMetric {
  std::string average = "macro";
  static void describe(Fields<RankingMetric>& f) {
    f.optional("average", &RankingMetric::average)
        .one_of({"macro", "weighted", "none"})
        .doc(
            "average over the classes, each against the rest; weighted: by their number of samples; none: a figure for "
            "each class");
    ProbabilityMetric::describe(f);
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const ClassScores scores(in, ignore_index, class_dim);
    const int64_t columns = scores.is_binary() ? 1 : scores.num_classes();
    const auto take = [scores, columns, from_logits = from_logits](const Tensors& inputs) -> Tensors {
      const auto rows = scores.read(inputs);
      // One logit orders the samples as its probability does, and unlike that is never rounded to 1.
      return {ClassScores::probabilities(rows, from_logits && !scores.is_binary()).view({-1, columns}), rows.labels};
    };
    const auto finish = [columns, how = average](const Tensors& rows) -> Figures {
      if (columns == 1) return {{"", Area::of(curve_of(rows[0].squeeze(1), rows[1]))}};
      Figures figures;
      double sum = 0, weights = 0;
      for (int64_t i = 0; i < columns; ++i) {
        const at::Tensor positive = rows[1].eq(i);
        const double area = Area::of(curve_of(rows[0].select(1, i), positive));
        const double weight = how == "weighted" ? positive.sum().item<double>() : 1;
        figures.emplace_back(std::to_string(i), area);
        if (std::isnan(area)) continue;  // a class that does not occur
        sum += weight * area;
        weights += weight;
      }
      if (how == "none") return figures;
      return {{"", weights == 0 ? NAN : sum / weights}};
    };
    const Tensors empty = {at::zeros({0, columns}, at::kDouble), at::zeros({0}, at::kLong)};
    return std::make_unique<GatherMetric>(empty, take, finish);
  }
};

}  // namespace

void add_ranking_metrics(MetricRegistry& metrics) {
  metrics.add<RankingMetric<RocArea>>(
      "AUROC", "area under the receiver operating characteristic; for several classes, each against the rest");
  metrics.add<RankingMetric<PrecisionArea>>(
      "AveragePrecision", "mean precision over the recalls; for several classes, each against the rest");
}

}  // namespace trainrun
