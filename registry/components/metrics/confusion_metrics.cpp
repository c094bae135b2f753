#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "registry/components/metrics/accumulators.h"
#include "registry/components/metrics/class_scores.h"

// Metrics that follow from how often each class was taken for each. Numbers equal scikit-learn's.

namespace trainrun {

/// What is made of the figures of classes.
enum class ClassAverage { kBinary, kMicro, kMacro, kWeighted, kSamples, kNone };
template <>
struct Words<ClassAverage> {
  static constexpr std::array kWords = {"binary", "micro", "macro", "weighted", "samples", "none"};
};

namespace {

/// How many samples of each class were taken for each.
struct Confusion {
  size_t classes;
  const std::vector<double>& counts;  // [classes, classes]: label, prediction
  bool is_binary;                     // the model has one output

  double at(size_t label, size_t prediction) const { return counts[label * classes + prediction]; }
  double of_label(size_t label) const {
    double sum = 0;
    for (size_t i = 0; i < classes; ++i) sum += at(label, i);
    return sum;
  }
  double of_prediction(size_t prediction) const {
    double sum = 0;
    for (size_t i = 0; i < classes; ++i) sum += at(i, prediction);
    return sum;
  }
  double total() const {
    double sum = 0;
    for (const double count : counts) sum += count;
    return sum;
  }
};

/// Of samples with several labels, [L, 2, 2]: how often each label was 0 or 1, and taken for 0 or 1.
at::Tensor label_confusion(const ClassScores::LabelRows& rows, double threshold) {
  const auto sum = [&](const at::Tensor& cases) { return cases.logical_and(rows.counted).sum(0); };
  const at::Tensor actual = rows.labels.eq(1);
  const at::Tensor predicted = rows.scores.gt(threshold);
  const at::Tensor cells =
      at::stack({sum(actual.logical_or(predicted).logical_not()), sum(actual.logical_not().logical_and(predicted)),
                 sum(actual.logical_and(predicted.logical_not())), sum(actual.logical_and(predicted))},
                1);
  return cells.view({-1, 2, 2});
}

/// The metric that `Formula` computes of a Confusion: `Figures operator()(const Confusion&) const`, `static void
/// describe(auto&)`, `void require(const ClassScores&) const`, which way it is better, and, of samples with several
/// labels, `std::unique_ptr<Metric> of_labels(const ClassScores&, double threshold) const`.
template <class Formula>
struct ConfusionMetricOf : ThresholdMetric, Formula {
  static void describe(Fields<ConfusionMetricOf>& f) {
    Formula::describe(f);
    ThresholdMetric::describe(f);
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const ClassScores scores(in, ignore_index, class_dim);
    Formula::require(scores);
    if (scores.num_labels() > 0) return Formula::of_labels(scores, threshold);
    const int64_t classes = scores.num_classes();
    const auto add = [scores, classes, threshold = threshold](const Tensors& inputs) {
      const auto rows = scores.read(inputs);
      const at::Tensor cells = rows.labels * classes + ClassScores::predicted(rows, threshold);
      return at::bincount(cells, {}, classes * classes).view({classes, classes});
    };
    const auto finish = [classes, binary = scores.is_binary(),
                         formula = static_cast<const Formula&>(*this)](const std::vector<double>& counts) {
      return formula(Confusion{static_cast<size_t>(classes), counts, binary});
    };
    return std::make_unique<SumMetric>(Formula::better(), std::vector<int64_t>{classes, classes}, add, finish);
  }
};

enum class Score { kPrecision, kRecall, kF1, kIoU };

/// Precision, recall, F1 or intersection over union: of class c a share part(c) / whole(c).
template <Score kScore>
struct ClassScore {
  std::optional<ClassAverage> average;
  double zero_division = 0;
  static void describe(auto& f) {
    f.optional("average", &ClassScore::average)
        .doc(
            "average over the classes, or over the labels where output and target are [N, L]; binary: only class 1; "
            "samples: with several labels, over the samples, each with the figure of its own labels; none: a figure "
            "for each class or label; by default binary if the model has one output, else macro");
    f.optional("zero_division", &ClassScore::zero_division).at_least(0).at_most(1).doc("the value if the divisor is 0");
  }
  static KnownMetric::Better better() { return MonitorMode::kMax; }
  void require(const ClassScores& scores) const {
    if (average == ClassAverage::kBinary && scores.num_labels() > 0) {
      throw LayerError("average is binary, but each sample has " + std::to_string(scores.num_labels()) +
                       " labels; write micro, macro, weighted, samples or none");
    }
    if (average == ClassAverage::kSamples && scores.num_labels() == 0) {
      throw LayerError("average: samples is for samples with several labels, output and target [N, L]");
    }
    if (average == ClassAverage::kBinary && scores.num_classes() != 2) {
      throw LayerError("average is binary, the output has " + std::to_string(scores.num_classes()) + " classes");
    }
  }
  Figures operator()(const Confusion& c) const {
    const ClassAverage how = average.value_or(c.is_binary ? ClassAverage::kBinary : ClassAverage::kMacro);
    if (how == ClassAverage::kBinary) return {{"", share(part(c, 1), whole(c, 1))}};
    Figures figures;
    double parts = 0, wholes = 0, sum = 0, occurring = 0, weighted = 0;
    for (size_t i = 0; i < c.classes; ++i) {
      const double own = share(part(c, i), whole(c, i));
      figures.emplace_back(std::to_string(i), own);
      parts += part(c, i);
      wholes += whole(c, i);
      weighted += c.of_label(i) * own;
      if (c.of_label(i) + c.of_prediction(i) == 0) continue;  // as if there were no such class
      sum += own;
      occurring += 1;
    }
    if (how == ClassAverage::kNone) return figures;
    const double total = c.total();
    if (total == 0) return {{"", zero_division}};
    if (how == ClassAverage::kMicro) return {{"", share(parts, wholes)}};
    return {{"", how == ClassAverage::kMacro ? sum / occurring : weighted / total}};
  }

  std::unique_ptr<Metric> of_labels(const ClassScores& scores, double threshold) const {
    const auto add = [scores, threshold, own = *this](const Tensors& inputs) {
      const auto rows = scores.read_labels(inputs);
      return at::cat({label_confusion(rows, threshold).flatten().to(at::kDouble), own.sample_sums(rows, threshold)});
    };
    const int64_t labels = scores.num_labels();
    const auto finish = [own = *this, labels](const std::vector<double>& sums) {
      return own.label_figures(sums, static_cast<size_t>(labels));
    };
    auto metric = std::make_unique<SumMetric>(better(), std::vector<int64_t>{4 * labels + 2}, add, finish);
    metric->set_num_labels(labels);
    return metric;
  }

 private:
  double share(double part, double whole) const { return whole == 0 ? zero_division : part / whole; }
  /// Of numbers or tensors: how many are right, how many are predicted, and how many there are.
  static auto part_of(const auto& right) { return kScore == Score::kF1 ? 2 * right : 1 * right; }
  template <class T>
  static T whole_of(const T& right, const T& predicted, const T& actual) {
    if constexpr (kScore == Score::kPrecision) return predicted;
    if constexpr (kScore == Score::kRecall) return actual;
    if constexpr (kScore == Score::kF1) return predicted + actual;
    return predicted + actual - right;
  }
  static double part(const Confusion& c, size_t i) { return part_of(c.at(i, i)); }
  static double whole(const Confusion& c, size_t i) { return whole_of(c.at(i, i), c.of_prediction(i), c.of_label(i)); }

  /// [2]: the sum of what the labels of each sample come to, and how many samples there are.
  at::Tensor sample_sums(const ClassScores::LabelRows& rows, double threshold) const {
    const at::Tensor predicted = rows.scores.gt(threshold).logical_and(rows.counted);
    const auto count = [](const at::Tensor& cases) { return cases.sum(1).to(at::kDouble); };  // of each sample
    const at::Tensor right = count(predicted.logical_and(rows.labels.eq(1)));
    const at::Tensor whole = whole_of<at::Tensor>(right, count(predicted), count(rows.labels.eq(1)));
    const at::Tensor shares = at::where(whole.eq(0), at::full_like(whole, zero_division), part_of(right) / whole);
    const at::Tensor known = rows.counted.any(1).to(at::kDouble);
    return at::stack({(shares * known).sum(), known.sum()});
  }

  /// `sums`: of each label a Confusion of two classes, then sample_sums. As scikit-learn's: a label that never occurs
  /// counts as `zero_division`.
  Figures label_figures(const std::vector<double>& sums, size_t labels) const {
    const ClassAverage how = average.value_or(ClassAverage::kMacro);
    Figures figures;
    std::vector<double> all(4, 0);
    double sum = 0, weighted = 0, weights = 0;
    for (size_t i = 0; i < labels; ++i) {
      const auto first = sums.begin() + static_cast<std::ptrdiff_t>(4 * i);
      const std::vector<double> counts(first, first + 4);
      const Confusion c{2, counts, true};
      const double own = share(part(c, 1), whole(c, 1));
      figures.emplace_back(std::to_string(i), own);
      for (size_t cell = 0; cell < 4; ++cell) all[cell] += counts[cell];
      sum += own;
      weighted += c.of_label(1) * own;
      weights += c.of_label(1);
    }
    if (how == ClassAverage::kNone) return figures;
    if (how == ClassAverage::kSamples) return {{"", share(sums[4 * labels], sums[4 * labels + 1])}};
    const Confusion together{2, all, true};
    if (how == ClassAverage::kMicro) return {{"", share(part(together, 1), whole(together, 1))}};
    const bool weighs = how == ClassAverage::kWeighted && weights > 0;
    return {{"", weighs ? weighted / weights : sum / static_cast<double>(labels)}};
  }
};

struct Plain {
  static void describe(auto&) {}
  static KnownMetric::Better better() { return MonitorMode::kMax; }
  void require(const ClassScores&) const {}
  /// As in scikit-learn, which has them of one label a sample only.
  static std::unique_ptr<Metric> of_labels(const ClassScores& scores, double) {
    throw LayerError("it is for one label per sample, but each has " + std::to_string(scores.num_labels()) +
                     "; F1 or AUROC with average: none give a figure for each label");
  }
};

struct ConfusionMatrix : Plain {
  static KnownMetric::Better better() { return std::nullopt; }
  Figures operator()(const Confusion& c) const { return cells(c, ""); }

  static std::unique_ptr<Metric> of_labels(const ClassScores& scores, double threshold) {
    const int64_t labels = scores.num_labels();
    const auto add = [scores, threshold](const Tensors& inputs) {
      return label_confusion(scores.read_labels(inputs), threshold);
    };
    const auto finish = [labels](const std::vector<double>& sums) {
      Figures figures;
      for (int64_t i = 0; i < labels; ++i) {
        const std::vector<double> counts(sums.begin() + 4 * i, sums.begin() + 4 * (i + 1));
        const Figures own = cells({2, counts, true}, std::to_string(i) + "/");
        figures.insert(figures.end(), own.begin(), own.end());
      }
      return figures;
    };
    auto metric = std::make_unique<SumMetric>(better(), std::vector<int64_t>{labels, 2, 2}, add, finish);
    metric->set_num_labels(labels);
    return metric;
  }

 private:
  static Figures cells(const Confusion& c, const std::string& before) {
    Figures figures;
    for (size_t label = 0; label < c.classes; ++label) {
      for (size_t prediction = 0; prediction < c.classes; ++prediction) {
        figures.emplace_back(before + std::to_string(label) + "/" + std::to_string(prediction),
                             c.at(label, prediction));
      }
    }
    return figures;
  }
};

/// Source: Gorodkin 2004; 0 where all samples have one label or one prediction, as in scikit-learn.
struct MatthewsCorrCoef : Plain {
  Figures operator()(const Confusion& c) const {
    const double total = c.total();
    double right = 0, expected = 0, labels = 0, predictions = 0;
    for (size_t i = 0; i < c.classes; ++i) {
      const double label = c.of_label(i), prediction = c.of_prediction(i);
      right += c.at(i, i);
      expected += label * prediction;
      labels += label * label;
      predictions += prediction * prediction;
    }
    const double spread = (total * total - labels) * (total * total - predictions);
    return {{"", spread == 0 ? 0 : (right * total - expected) / std::sqrt(spread)}};
  }
};

/// Source: Cohen 1960, 1968 (weights).
struct CohenKappa : Plain {
  std::optional<std::string> weights;
  static void describe(auto& f) {
    f.optional("weights", &CohenKappa::weights)
        .one_of({"linear", "quadratic"})
        .doc("how much more an error between distant classes counts; by default all errors count alike");
  }
  Figures operator()(const Confusion& c) const {
    const double total = c.total();
    double observed = 0, expected = 0;
    for (size_t i = 0; i < c.classes; ++i) {
      for (size_t j = 0; j < c.classes; ++j) {
        const double distance = std::abs(static_cast<double>(i) - static_cast<double>(j));
        const double weight = !weights ? (i == j ? 0 : 1) : weights == "linear" ? distance : distance * distance;
        observed += weight * c.at(i, j);
        expected += weight * c.of_label(i) * c.of_prediction(j) / total;
      }
    }
    return {{"", expected == 0 || total == 0 ? NAN : 1 - observed / expected}};
  }
};

}  // namespace

void add_confusion_metrics(MetricRegistry& metrics) {
  metrics.add<ConfusionMetricOf<ClassScore<Score::kPrecision>>>(
      "Precision", "share of the samples predicted as a class that are of that class");
  metrics.add<ConfusionMetricOf<ClassScore<Score::kRecall>>>(
      "Recall", "share of the samples of a class that are predicted as that class");
  metrics.add<ConfusionMetricOf<ClassScore<Score::kF1>>>("F1", "harmonic mean of precision and recall");
  metrics.add<ConfusionMetricOf<ClassScore<Score::kIoU>>>(
      "MeanIoU", "share of the points that are of a class or predicted as it that are both: intersection over union");
  metrics.add<ConfusionMetricOf<ClassScore<Score::kF1>>>(
      "Dice",
      "twice the points that are of a class and predicted as it, divided by the size of both regions: F1, under its "
      "name for images");
  metrics.add<ConfusionMetricOf<ConfusionMatrix>>(
      "ConfusionMatrix",
      "how many samples of class i were predicted as class j, in a figure i/j for each pair; with several labels, "
      "output and target [N, L], label/i/j with i and j 0 or 1; not on the console");
  metrics.add<ConfusionMetricOf<MatthewsCorrCoef>>("MatthewsCorrCoef", "correlation of labels and predictions");
  metrics.add<ConfusionMetricOf<CohenKappa>>("CohenKappa", "agreement of labels and predictions beyond chance");
}

}  // namespace trainrun
