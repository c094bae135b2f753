#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "registry/components/metrics/accumulators.h"
#include "registry/components/metrics/class_scores.h"

namespace trainrun {
namespace {

/// Of several labels a sample: as torchmetrics' MultilabelAccuracy (micro), or with `subset` as scikit-learn's.
struct Accuracy : ThresholdMetric {
  bool subset = false;
  static void describe(Fields<Accuracy>& f) {
    f.optional("subset", &Accuracy::subset)
        .doc(
            "with several labels, output and target [N, L]: the share of samples whose labels are all right, instead "
            "of the share of labels that are");
    ThresholdMetric::describe(f);
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const ClassScores scores(in, ignore_index, class_dim);
    if (subset && scores.num_labels() == 0) {
      throw LayerError("subset: true is for samples with several labels, output and target [N, L]");
    }
    const auto add = [scores, threshold = threshold, subset = subset](const Tensors& inputs) {
      if (subset) return right_samples(scores.read_labels(inputs), threshold);
      const auto rows = scores.read(inputs);
      return sum_and_count(ClassScores::predicted(rows, threshold).eq(rows.labels));
    };
    const auto finish = [](const std::vector<double>& sums) -> Figures { return {{"", mean_of(sums)}}; };
    return std::make_unique<SumMetric>(MonitorMode::kMax, std::vector<int64_t>{2}, add, finish);
  }

 private:
  /// Samples of which no label counts do not count.
  static at::Tensor right_samples(const ClassScores::LabelRows& rows, double threshold) {
    const at::Tensor wrong = rows.scores.gt(threshold).ne(rows.labels.eq(1)).logical_and(rows.counted);
    const at::Tensor known = rows.counted.any(1);
    return at::stack({wrong.any(1).logical_not().logical_and(known).sum(), known.sum()});
  }
};

/// Of equal logits the later class comes first, as in scikit-learn's top_k_accuracy_score.
struct TopKAccuracy : ClassMetric {
  int64_t k = 2;
  static void describe(Fields<TopKAccuracy>& f) {
    f.optional("k", &TopKAccuracy::k).at_least(1).doc("how many of the largest logits count");
    ClassMetric::describe(f);
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const ClassScores scores(in, ignore_index, class_dim);
    if (scores.is_binary()) throw LayerError("it needs logits of several classes, [N, C, …]");
    if (k > scores.num_classes()) {
      throw LayerError("k is " + std::to_string(k) + ", the output has " + std::to_string(scores.num_classes()) +
                       " classes");
    }
    const auto add = [scores, k = k](const Tensors& inputs) {
      const auto rows = scores.read(inputs);
      const at::Tensor labels = rows.labels.unsqueeze(1);
      const at::Tensor own = rows.scores.gather(1, labels);
      const at::Tensor later = at::arange(rows.scores.size(1), labels.options()).gt(labels);
      const at::Tensor ahead = rows.scores.gt(own).logical_or(rows.scores.eq(own).logical_and(later)).sum(1);
      return sum_and_count(ahead.lt(k));
    };
    const auto finish = [](const std::vector<double>& sums) -> Figures { return {{"", mean_of(sums)}}; };
    return std::make_unique<SumMetric>(MonitorMode::kMax, std::vector<int64_t>{2}, add, finish);
  }
};

struct Perplexity : ProbabilityMetric {
  static void describe(Fields<Perplexity>& f) { ProbabilityMetric::describe(f); }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const ClassScores scores(in, ignore_index, class_dim);
    if (scores.is_binary()) throw LayerError("it needs logits of several classes, [N, C, …]");
    const auto add = [scores, from_logits = from_logits](const Tensors& inputs) {
      const auto rows = scores.read(inputs);
      const at::Tensor values = rows.scores.to(at::kDouble);
      const at::Tensor log_p = from_logits ? values.log_softmax(1) : values.log();
      return sum_and_count(-log_p.gather(1, rows.labels.unsqueeze(1)));
    };
    const auto finish = [](const std::vector<double>& sums) -> Figures {
      return {{"", sums[1] == 0 ? NAN : std::exp(sums[0] / sums[1])}};
    };
    return std::make_unique<SumMetric>(MonitorMode::kMin, std::vector<int64_t>{2}, add, finish);
  }
};

/// Expected calibration error. Source: of several classes Guo et al. 2017, "On Calibration of Modern Neural Networks",
/// eq. 3: confidence of the predicted class against how often it is right; of two classes by one output Naeini et al.
/// 2015: probability of class 1 against how often it is class 1. Bins are ((m - 1) / M, m / M], the first holds 0 too.
struct CalibrationError : ProbabilityMetric {
  int64_t num_bins = 15;
  static void describe(Fields<CalibrationError>& f) {
    f.optional("num_bins", &CalibrationError::num_bins).at_least(1).doc("bins of equal width for the confidence");
    ProbabilityMetric::describe(f);
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const auto add = [scores = ClassScores(in, ignore_index, class_dim), from_logits = from_logits,
                      bins = num_bins](const Tensors& inputs) {
      const auto rows = scores.read(inputs);
      const at::Tensor p = ClassScores::probabilities(rows, from_logits);
      const at::Tensor confidence = scores.is_binary() ? p : p.amax(1);
      const at::Tensor right = scores.is_binary() ? rows.labels : p.argmax(1).eq(rows.labels);
      const at::Tensor edges = at::linspace(0, 1, bins + 1, p.options());
      const at::Tensor bin = at::bucketize(confidence, edges).sub(1).clamp(0, bins - 1);
      const at::Tensor terms = at::stack({at::ones_like(confidence), confidence, right.to(at::kDouble)}, 1);
      return at::zeros({bins, 3}, p.options()).index_add(0, bin, terms);
    };
    const auto finish = [](const std::vector<double>& sums) -> Figures {
      double error = 0;
      double count = 0;
      for (size_t i = 0; i < sums.size(); i += 3) {  // [how many, sum of confidence, right]
        error += std::abs(sums[i + 1] - sums[i + 2]);
        count += sums[i];
      }
      return {{"", count == 0 ? NAN : error / count}};
    };
    return std::make_unique<SumMetric>(MonitorMode::kMin, std::vector<int64_t>{num_bins, 3}, add, finish);
  }
};

}  // namespace

void add_classification_metrics(MetricRegistry& metrics) {
  metrics.add<Accuracy>(
      "Accuracy",
      "share of targets whose logit is the largest; for a single logit, or several labels, output and target [N, L], "
      "whether it is above a threshold");
  metrics.add<TopKAccuracy>("TopKAccuracy", "share of targets whose logit is among the k largest");
  metrics.add<Perplexity>("Perplexity", "exp of the mean cross-entropy of logits [N, C, …] against labels [N, …]");
  metrics.add<CalibrationError>(
      "CalibrationError",
      "expected calibration error: mean distance between confidence and accuracy, by bins; with several labels, output "
      "and target [N, L], over all labels of all samples together");
}

}  // namespace trainrun
