#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>

#include <cmath>

#include "registry/metrics/accumulators.h"
#include "registry/metrics/class_scores.h"

// Metrics that follow from how often each class was taken for each. Numbers equal scikit-learn's.

namespace trainrun {

/// What is made of the figures of classes.
enum class ClassAverage { kBinary, kMicro, kMacro, kWeighted, kNone };
template <>
struct Words<ClassAverage> {
  static constexpr std::array kWords = {"binary", "micro", "macro", "weighted", "none"};
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

/// The metric that `Formula` computes of a Confusion: `Figures operator()(const Confusion&) const`, `static void
/// describe(auto&)` and `void require(const ClassScores&) const`.
template <class Formula>
struct ConfusionMetricOf : ThresholdMetric, Formula {
  static void describe(Fields<ConfusionMetricOf>& f) {
    Formula::describe(f);
    ThresholdMetric::describe(f);
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const ClassScores scores(in, ignore_index, class_dim);
    Formula::require(scores);
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
    return std::make_unique<SumMetric>(std::vector<int64_t>{classes, classes}, add, finish);
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
            "average over the classes; binary: only class 1; none: a figure for each class; by default binary if the "
            "model has one output, else macro");
    f.optional("zero_division", &ClassScore::zero_division).at_least(0).at_most(1).doc("the value if the divisor is 0");
  }
  void require(const ClassScores& scores) const {
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

 private:
  double share(double part, double whole) const { return whole == 0 ? zero_division : part / whole; }
  static double part(const Confusion& c, size_t i) { return kScore == Score::kF1 ? 2 * c.at(i, i) : c.at(i, i); }
  static double whole(const Confusion& c, size_t i) {
    const double predicted = kScore == Score::kRecall ? 0 : c.of_prediction(i);
    if (kScore == Score::kIoU) return predicted + c.of_label(i) - c.at(i, i);
    return predicted + (kScore == Score::kPrecision ? 0 : c.of_label(i));
  }
};

struct Plain {
  static void describe(auto&) {}
  void require(const ClassScores&) const {}
};

struct ConfusionMatrix : Plain {
  Figures operator()(const Confusion& c) const {
    Figures figures;
    for (size_t label = 0; label < c.classes; ++label) {
      for (size_t prediction = 0; prediction < c.classes; ++prediction) {
        figures.emplace_back(std::to_string(label) + "/" + std::to_string(prediction), c.at(label, prediction));
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
struct CohenKappa {
  std::optional<std::string> weights;
  static void describe(auto& f) {
    f.optional("weights", &CohenKappa::weights)
        .one_of({"linear", "quadratic"})
        .doc("how much more an error between distant classes counts; by default all errors count alike");
  }
  void require(const ClassScores&) const {}
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
      "MeanIoU", "share of the points predicted as a class, or of it, that are both: intersection over union");
  metrics.add<ConfusionMetricOf<ClassScore<Score::kF1>>>(
      "Dice",
      "twice the points that are of a class and predicted as it, over both regions: F1, by its name for images");
  metrics.add<ConfusionMetricOf<ConfusionMatrix>>(
      "ConfusionMatrix",
      "how many samples of class i were predicted as class j, in a figure i/j for each pair; not on the console");
  metrics.add<ConfusionMetricOf<MatthewsCorrCoef>>("MatthewsCorrCoef", "correlation of labels and predictions");
  metrics.add<ConfusionMetricOf<CohenKappa>>("CohenKappa", "agreement of labels and predictions beyond chance");
}

}  // namespace trainrun
