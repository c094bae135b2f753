#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "registry/components/metrics/accumulators.h"
#include "registry/components/metrics/class_scores.h"
#include "registry/language/text_forms.h"

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
  static constexpr const char* kUndefined = "never positive, or always";
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
  static constexpr const char* kUndefined = "never positive";
  static double of(const Curve& curve) {
    double area = 0, positives = 0;
    for (size_t i = 0; i < curve.positives.size(); ++i) {
      area += (curve.positives[i] - positives) * curve.positives[i] / (curve.positives[i] + curve.negatives[i]);
      positives = curve.positives[i];
    }
    return positives == 0 ? NAN : area / positives;
  }
};

/// The mean of the areas that are defined, and which are not.
class MeanArea {
 public:
  void add(double area, double weight, const std::string& name) {
    ++count_;
    if (std::isnan(area)) return undefined_.push_back(name);
    sum_ += weight * area;
    weights_ += weight;
  }
  double value() const { return weights_ == 0 ? NAN : sum_ / weights_; }
  /// "2 of 5 labels are never positive; …"; "" where all are defined. `what`: of which there is one area each.
  std::string left_out(const std::string& what, const std::string& reason) const {
    if (undefined_.empty()) return "";
    constexpr size_t kMostNamed = 8;
    return std::to_string(undefined_.size()) + " of " + std::to_string(count_) + " " + what + " are " + reason +
           "; it is not defined for them, and they are left out of the mean: " + join_first(undefined_, kMostNamed);
  }

 private:
  double sum_ = 0, weights_ = 0;
  size_t count_ = 0;
  std::vector<std::string> undefined_;
};

enum class RankAverage { kMicro, kMacro, kWeighted, kSamples, kNone };

}  // namespace

template <>
struct Words<RankAverage> {
  static constexpr std::array kWords = {"micro", "macro", "weighted", "samples", "none"};
};

namespace {

/// Over rows of scores [n, C], and their classes [n] or, of labels, truth [n, L]: 1, 0, or -1 where it does not count.
template <class Area>
class RankingOverColumns : public GatherMetric {
 public:
  RankingOverColumns(Tensors empty, Rows take, RankAverage average)
      : GatherMetric(MonitorMode::kMax, std::move(empty), std::move(take),
                     [this](const Tensors& rows) { return figures(rows[0], rows[1]); }),
        average_(average) {}

  std::string left_out() const override { return left_out_; }

 private:
  static double area_of(const at::Tensor& scores, const at::Tensor& truth) {
    const at::Tensor counted = truth.ge(0).nonzero().squeeze(1);
    return Area::of(curve_of(scores.index_select(0, counted), truth.index_select(0, counted)));
  }

  Figures figures(const at::Tensor& scores, const at::Tensor& rows) const {
    left_out_.clear();
    const bool has_labels = rows.dim() == 2;
    if (average_ == RankAverage::kMicro) {
      const at::Tensor all = has_labels ? rows : rows.unsqueeze(1).eq(at::arange(scores.size(1))).to(at::kLong);
      return {{"", area_of(scores.flatten(), all.flatten())}};
    }
    const bool of_samples = average_ == RankAverage::kSamples;
    const int64_t dim = of_samples ? 0 : 1;
    MeanArea mean;
    Figures figures;
    for (int64_t i = 0; i < scores.size(dim); ++i) {
      const at::Tensor truth = has_labels ? rows.select(dim, i) : rows.eq(i).to(at::kLong);
      const double area = area_of(scores.select(dim, i), truth);
      const double weight = average_ == RankAverage::kWeighted ? truth.eq(1).sum().template item<double>() : 1;
      mean.add(area, weight, of_samples ? std::to_string(i) : label_name(i));
      if (average_ == RankAverage::kNone) figures.emplace_back(std::to_string(i), area);
    }
    if (average_ == RankAverage::kNone) return figures;
    const char* what = of_samples ? "samples" : has_labels ? "labels" : "classes";
    if (scores.size(0) > 0) left_out_ = mean.left_out(what, Area::kUndefined);
    return {{"", mean.value()}};
  }

  RankAverage average_;
  mutable std::string left_out_;  // by the last `compute`
};

template <class Area>
struct RankingMetric : ProbabilityMetric {
  RankAverage average = RankAverage::kMacro;
  static void describe(Fields<RankingMetric>& f) {
    f.optional("average", &RankingMetric::average)
        .doc(
            "average over the classes, each against the rest, or over the labels where output and target are [N, L]; "
            "weighted: by their number of samples; micro: all of them as one; samples: with several labels, over the "
            "samples, by how well each one's labels are ordered; none: a figure for each class or label. Classes or "
            "labels for which all samples, or none, are positive are left out of a mean");
    ProbabilityMetric::describe(f);
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const ClassScores scores(in, ignore_index, class_dim);
    if (average == RankAverage::kSamples && scores.num_labels() == 0) {
      throw LayerError("average: samples is for samples with several labels, output and target [N, L]");
    }
    if (scores.num_labels() > 0) return of_labels(scores);
    const int64_t columns = scores.is_binary() ? 1 : scores.num_classes();
    // One logit orders the samples as its probability does, and unlike that is never rounded to 1.
    const auto take = [scores, columns, from_logits = from_logits && !scores.is_binary()](const Tensors& inputs) {
      const auto rows = scores.read(inputs);
      return Tensors{ClassScores::probabilities(rows, from_logits).view({-1, columns}), rows.labels};
    };
    const Tensors empty = {at::zeros({0, columns}, at::kDouble), at::zeros({0}, at::kLong)};
    if (columns > 1) return std::make_unique<RankingOverColumns<Area>>(empty, take, average);
    const auto finish = [](const Tensors& rows) -> Figures {
      return {{"", Area::of(curve_of(rows[0].squeeze(1), rows[1]))}};
    };
    return std::make_unique<GatherMetric>(MonitorMode::kMax, empty, take, finish);
  }

 private:
  std::unique_ptr<Metric> of_labels(const ClassScores& scores) const {
    const auto take = [scores](const Tensors& inputs) {
      const auto rows = scores.read_labels(inputs);
      return Tensors{rows.scores.to(at::kDouble), rows.labels.masked_fill(rows.counted.logical_not(), -1)};
    };
    const int64_t labels = scores.num_labels();
    const Tensors empty = {at::zeros({0, labels}, at::kDouble), at::zeros({0, labels}, at::kLong)};
    auto metric = std::make_unique<RankingOverColumns<Area>>(empty, take, average);
    metric->set_num_labels(labels);
    return metric;
  }
};

}  // namespace

void add_ranking_metrics(MetricRegistry& metrics) {
  metrics.add<RankingMetric<RocArea>>(
      "AUROC",
      "area under the receiver operating characteristic; for several classes, each against the rest; for several "
      "labels (output and target [N, L]), each by itself");
  metrics.add<RankingMetric<PrecisionArea>>("AveragePrecision",
                                            "mean precision over the recalls; for several classes, each against the "
                                            "rest; for several labels (output and target [N, L]), each by itself");
}

}  // namespace trainrun
