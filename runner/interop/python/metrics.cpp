#include "runner/interop/python/metrics.h"

#include <nlohmann/json.hpp>

#include <map>
#include <optional>

#include "registry/language/figure_name.h"
#include "runner/interop/python/expression.h"

namespace trainrun::python {
namespace {

struct MetricReading {
  const Component<MetricKind>& metric;
  const std::vector<std::string>& variables;
  const Wiring& wiring;
  SourceFile& file;

  const std::string& output() const { return variables[0]; }
  const std::string& target() const { return variables[1]; }
  std::vector<int64_t> shape(size_t i) const { return wiring.kinds.at(variables[i]).shape; }
  bool is_integer(size_t i) const { return wiring.kinds.at(variables[i]).is_integer; }
  /// One output for two classes.
  bool is_binary() const { return shape(0).empty() || shape(0) == std::vector<int64_t>{1}; }
  std::string class_dim() const { return std::to_string(metric.attributes.value("class_dim", int64_t{1})); }
  /// "" where it is null.
  std::string option(const std::string& name) const {
    const auto found = metric.attributes.find(name);
    return found != metric.attributes.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
};

/// Scores and labels of two classes as rows [N].
std::string rows_of_two_classes(const MetricReading& in) {
  return in.output() + ".flatten(), " + in.target() + ".flatten()";
}

std::string as_number(const std::string& tensor) { return tensor + ".item()"; }

constexpr const char* kF1 = R"(def f1_scores(predicted, target, num_classes):
    """Of each class the harmonic mean of precision and recall."""
    confusion = torch.bincount(target * num_classes + predicted, minlength=num_classes**2).view(num_classes, -1)
    both = confusion.sum(0) + confusion.sum(1)
    return 2 * confusion.diag() / both.clamp(min=1)
)";

constexpr const char* kIoU = R"(def mean_iou(predicted, target, num_classes):
    """The mean over classes of the points that are both predicted and true, of those that are either."""
    pairs = target.flatten() * num_classes + predicted.flatten()
    confusion = torch.bincount(pairs, minlength=num_classes**2).view(num_classes, -1)
    common = confusion.diag()
    union = confusion.sum(0) + confusion.sum(1) - common
    return (common[union > 0] / union[union > 0]).double().mean()
)";

constexpr const char* kR2 = R"(def r2_score(output, target):
    residual = (target - output).double().square().sum(0)
    total = (target.double() - target.double().mean(0)).square().sum(0)
    return (1 - residual / total).mean()
)";

constexpr const char* kAuroc = R"(def auroc(score, label):
    """How often a sample of class 1 has a higher score than one of class 0; a tie is half of that."""
    positive, negative = score[label == 1].unsqueeze(1), score[label == 0].unsqueeze(0)
    return ((positive > negative).double() + 0.5 * (positive == negative)).mean()
)";

constexpr const char* kAveragePrecision = R"(def average_precision(score, label):
    """The mean precision at the thresholds at which a sample of class 1 is found."""
    thresholds = score[label == 1].unsqueeze(1)
    precision = (label * (score >= thresholds)).sum(1) / (score >= thresholds).sum(1)
    return precision.double().mean()
)";

constexpr const char* kCalibration = R"(def calibration_error(confidence, right, num_bins):
    """The mean distance of how sure a model is from how often it is right, over bins of equal width."""
    edges = torch.linspace(0, 1, num_bins + 1, dtype=torch.double, device=confidence.device)
    bins = (torch.bucketize(confidence.double(), edges) - 1).clamp(0, num_bins - 1)
    gaps = torch.zeros(num_bins, dtype=torch.double, device=confidence.device)
    return gaps.index_add(0, bins, confidence.double() - right.double()).abs().sum() / len(confidence)
)";

std::optional<std::string> accuracy(const MetricReading& in) {
  if (in.is_binary()) {
    const std::string threshold = literal(in.metric.attributes.value("threshold", nlohmann::json(0)));
    return as_number("((" + in.output() + ".flatten() > " + (threshold == "0.0" ? "0" : threshold) + ") == (" +
                     in.target() + ".flatten() == 1)).double().mean()");
  }
  if (!in.is_integer(1) || in.shape(0) == in.shape(1)) return std::nullopt;
  return as_number("(" + in.output() + ".argmax(" + in.class_dim() + ") == " + in.target() + ").double().mean()");
}

std::optional<std::string> f1(const MetricReading& in) {
  if (in.is_binary() || in.shape(0).size() != 1) return std::nullopt;
  const std::string average = in.option("average");
  in.file.define("f1_scores", kF1);
  const std::string scores =
      "f1_scores(" + in.output() + ".argmax(1), " + in.target() + ", " + std::to_string(in.shape(0)[0]) + ")";
  if (average == "macro") return as_number(scores + ".mean()");
  if (average == "binary") return as_number(scores + "[1]");
  return std::nullopt;
}

std::optional<std::string> mean_iou(const MetricReading& in) {
  in.file.define("mean_iou", kIoU);
  const std::string average = in.option("average");
  if (!average.empty() && average != "macro") return std::nullopt;
  return as_number("mean_iou(" + in.output() + ".argmax(1), " + in.target() + ", " + std::to_string(in.shape(0)[0]) +
                   ")");
}

std::optional<std::string> r2(const MetricReading& in) {
  if (in.option("multioutput") == "raw_values") return std::nullopt;
  in.file.define("r2_score", kR2);
  return as_number("r2_score(" + in.output() + ", " + in.target() + ")");
}

std::optional<std::string> auroc(const MetricReading& in) {
  if (!in.is_binary()) return std::nullopt;
  in.file.define("auroc", kAuroc);
  return as_number("auroc(" + rows_of_two_classes(in) + ")");
}

std::optional<std::string> average_precision(const MetricReading& in) {
  if (!in.is_binary()) return std::nullopt;
  in.file.define("average_precision", kAveragePrecision);
  return as_number("average_precision(" + rows_of_two_classes(in) + ")");
}

std::optional<std::string> calibration(const MetricReading& in) {
  if (!in.is_binary()) return std::nullopt;
  in.file.define("calibration_error", kCalibration);
  return as_number("calibration_error(" + in.output() + ".flatten().sigmoid(), " + in.target() + ".flatten(), " +
                   in.metric.attributes.at("num_bins").dump() + ")");
}

std::optional<std::string> of_errors(const MetricReading& in) {
  static const std::map<std::string, std::string> forms = {
      {"MAE", "abs().mean()"}, {"MSE", "square().mean()"}, {"RMSE", "square().mean().sqrt()"}};
  return as_number("(" + in.output() + " - " + in.target() + ")." + forms.at(in.metric.type));
}

std::optional<std::string> triplets(const MetricReading& in) {
  const std::string near = "F.pairwise_distance(" + in.variables[0] + ", " + in.variables[1] + ")";
  const std::string far = "F.pairwise_distance(" + in.variables[0] + ", " + in.variables[2] + ")";
  return as_number("(" + near + " < " + far + ").double().mean()");
}

std::optional<std::string> perplexity(const MetricReading& in) {
  const std::string inputs = in.class_dim() == "1" ? in.output() + ", " + in.target()
                                                   : in.output() + ".flatten(0, -2), " + in.target() + ".flatten()";
  return as_number("F.cross_entropy(" + inputs + ").exp()");
}

using WriteMetric = std::optional<std::string> (*)(const MetricReading&);
const std::map<std::string, WriteMetric>& metric_writers() {
  static const std::map<std::string, WriteMetric> table = {{"Accuracy", accuracy},
                                                           {"F1", f1},
                                                           {"MeanIoU", mean_iou},
                                                           {"R2", r2},
                                                           {"AUROC", auroc},
                                                           {"AveragePrecision", average_precision},
                                                           {"CalibrationError", calibration},
                                                           {"MAE", of_errors},
                                                           {"MSE", of_errors},
                                                           {"RMSE", of_errors},
                                                           {"TripletAccuracy", triplets},
                                                           {"Perplexity", perplexity}};
  return table;
}

}  // namespace

std::vector<Figure> write_metrics(const Recipe& recipe, const Wiring& wiring, SourceFile& file) {
  std::vector<Figure> figures;
  const std::vector<std::string> names = figure_names(recipe.metrics);
  for (size_t i = 0; i < recipe.metrics.size(); ++i) {
    const auto& metric = recipe.metrics[i];
    const auto writer = metric_writers().find(metric.type);
    const auto text =
        writer == metric_writers().end() ? std::nullopt : writer->second({metric, wiring.metrics[i], wiring, file});
    if (text) {
      figures.push_back({names[i], *text});
    } else {
      file.note(metric.place.to_string() + ": " + metric.path + ": the program does not compute " + metric.type +
                " with these options; the others it does");
    }
  }
  return figures;
}

}  // namespace trainrun::python
