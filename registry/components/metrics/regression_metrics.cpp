#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "registry/components/metrics/accumulators.h"
#include "registry/components/metrics/correlations.h"

namespace trainrun {
namespace {

void require_one_shape(const MetricInputs& in) {
  in.require_inputs(2, 2);
  if (in.shape(0) == in.shape(1)) return;
  throw LayerError("it compares tensors of the same shape, not " + shape_text(in.shape(0)) + " and " +
                   shape_text(in.shape(1)));
}

at::Tensor difference(const Tensors& inputs) {
  TORCH_CHECK(inputs[0].sizes() == inputs[1].sizes(), "it compares tensors of the same shape, not ",
              shape_text(inputs[0].sizes()), " and ", shape_text(inputs[1].sizes()));
  return inputs[0].to(at::kDouble) - inputs[1].to(at::kDouble);
}

/// The names and values are scikit-learn's.
struct EachOutput {
  std::string multioutput = "uniform_average";

  template <class T>
  static void describe_into(Fields<T>& f) {
    f.optional("multioutput", &EachOutput::multioutput)
        .one_of({"uniform_average", "raw_values"})
        .doc(
            "raw_values: also a figure for each element of a sample: the columns of several labels by their names, the "
            "steps of a forecast by their numbers, from 1");
  }
  bool is_raw() const { return multioutput == "raw_values"; }
  /// `figures` of each element, behind the one of all.
  Figures with_each(double all, const std::vector<double>& figures) const {
    Figures named = {{"", all}};
    for (size_t i = 0; is_raw() && i < figures.size(); ++i) named.emplace_back(std::to_string(i), figures[i]);
    return named;
  }
};

enum class Measure { kAbsolute, kSquare, kRootSquare, kShare };

int64_t num_columns(const MetricInputs& in) {
  require_one_shape(in);
  const at::IntArrayRef sizes = in.shape(0).slice(1);
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Of each element.
template <Measure kMeasure>
at::Tensor errors_of(const Tensors& inputs) {
  constexpr double kLeastTarget = 1.17e-6;  // torchmetrics': what is nearer to 0 counts as this
  const at::Tensor apart = difference(inputs);
  if constexpr (kMeasure == Measure::kShare)
    return apart.abs() / inputs[1].to(at::kDouble).abs().clamp_min(kLeastTarget);
  return kMeasure == Measure::kAbsolute ? apart.abs() : apart.square();
}

/// Mean over all elements.
template <Measure kMeasure>
struct MeanError : EachOutput {
  static void describe(Fields<MeanError>& f) { EachOutput::describe_into(f); }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const int64_t columns = is_raw() ? num_columns(in) : 0;
    require_one_shape(in);
    const auto add = [columns](const Tensors& inputs) {
      const at::Tensor errors = errors_of<kMeasure>(inputs);
      const at::Tensor all =
          at::stack({errors.sum(), at::full({}, static_cast<double>(errors.numel()), errors.options())});
      return columns == 0 ? all : at::cat({all, errors.reshape({-1, columns}).sum(0)});
    };
    const auto finish = [own = *this, columns](const std::vector<double>& sums) -> Figures {
      const auto figure = [](double sum, double count) {
        const double mean = count == 0 ? 0 : sum / count;
        return kMeasure == Measure::kRootSquare ? std::sqrt(mean) : mean;
      };
      std::vector<double> each;
      for (int64_t i = 0; i < columns; ++i) {
        each.push_back(figure(sums[static_cast<size_t>(i) + 2], sums[1] / static_cast<double>(columns)));
      }
      return own.with_each(figure(sums[0], sums[1]), each);
    };
    auto metric = std::make_unique<SumMetric>(MonitorMode::kMin, std::vector<int64_t>{2 + columns}, add, finish);
    metric->set_num_labels(columns);
    return metric;
  }
};

/// Output and target with a column for each element of a sample.
Tensors columns_of(const Tensors& inputs, int64_t columns) {
  difference(inputs);  // refuses what does not fit
  Tensors result;
  for (const at::Tensor& input : inputs) {
    result.push_back(input.to(at::kDouble).reshape({input.size(0), columns}));
  }
  return result;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// What R2 and correlation need of some samples, [kMoments, D]. Means and what is about them, not sums of squares,
/// which lose every digit where the mean is large; so they are gathered and merged rather than added.
enum Moment : int64_t { kCount, kOutput, kTarget, kOutputSquares, kTargetSquares, kProducts, kErrors, kMoments };

at::Tensor moments_of(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor output_mean = output.mean(0);
  const at::Tensor target_mean = target.mean(0);
  const at::Tensor x = output - output_mean;
  const at::Tensor y = target - target_mean;
  const at::Tensor count = at::full(output_mean.sizes(), static_cast<double>(output.size(0)), output.options());
  return at::stack({count, output_mean, target_mean, x.square().sum(0), y.square().sum(0), (x * y).sum(0),
                    (output - target).square().sum(0)});
}

/// [k, kMoments, D] -> [1, kMoments, D]. Source: Chan, Golub & LeVeque 1983, eq. 1.5.
at::Tensor merge_moments(const at::Tensor& rows) {
  const auto row = [&](int64_t i) { return rows.select(1, i); };  // [k, D]
  const at::Tensor count = row(kCount).sum(0);
  const at::Tensor share = row(kCount) / count.clamp_min(1);
  const at::Tensor output = (share * row(kOutput)).sum(0);
  const at::Tensor target = (share * row(kTarget)).sum(0);
  const at::Tensor x = row(kOutput) - output;
  const at::Tensor y = row(kTarget) - target;
  const auto about = [&](int64_t i, const at::Tensor& apart) { return (row(i) + row(kCount) * apart).sum(0); };
  return at::stack({count, output, target, about(kOutputSquares, x * x), about(kTargetSquares, y * y),
                    about(kProducts, x * y), row(kErrors).sum(0)})
      .unsqueeze(0);
}

/// `Formula::of(moments)` of each column, and their mean.
template <class Formula>
struct MomentMetric : EachOutput {
  static void describe(Fields<MomentMetric>& f) { EachOutput::describe_into(f); }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const int64_t columns = num_columns(in);
    const auto take = [columns](const Tensors& inputs) -> Tensors {
      const Tensors pair = columns_of(inputs, columns);
      return {moments_of(pair[0], pair[1]).unsqueeze(0)};
    };
    const auto merge = [](const Tensors& rows) -> Tensors { return {merge_moments(rows[0])}; };
    const auto finish = [own = *this, columns](const Tensors& rows) -> Figures {
      const std::vector<double> merged = numbers_of(merge_moments(rows[0]));
      std::vector<double> figures;
      for (int64_t i = 0; i < columns; ++i) {
        figures.push_back(
            Formula::of([&](int64_t moment) { return merged[static_cast<size_t>(moment * columns + i)]; }));
      }
      return own.with_each(mean(figures), figures);
    };
    auto metric = std::make_unique<GatherMetric>(
        MonitorMode::kMax, Tensors{at::zeros({0, kMoments, columns}, at::kDouble)}, take, finish, merge);
    metric->set_num_labels(columns);
    return metric;
  }
};

/// As scikit-learn's r2_score: of a constant target 1 where it is met, else 0.
struct Determination {
  static double of(const auto& moment) {
    if (moment(kCount) < 2) return NAN;
    if (moment(kTargetSquares) == 0) return moment(kErrors) == 0 ? 1 : 0;
    return 1 - moment(kErrors) / moment(kTargetSquares);
  }
};

double correlation(double products, double squares, double other_squares) {
  if (squares == 0 || other_squares == 0) return NAN;
  return std::clamp(products / (std::sqrt(squares) * std::sqrt(other_squares)), -1.0, 1.0);
}

struct Pearson {
  static double of(const auto& moment) {
    return correlation(moment(kProducts), moment(kOutputSquares), moment(kTargetSquares));
  }
};

/// Ranks from 1; equal values share the mean of theirs.
at::Tensor ranks_of(const at::Tensor& values) {
  const auto [sorted, order] = values.sort();
  const std::vector<double> ascending = numbers_of(sorted);
  at::Tensor ranks = at::zeros({values.size(0)}, at::kDouble);
  auto* rank = ranks.mutable_data_ptr<double>();
  for (size_t begin = 0, end = 0; begin < ascending.size(); begin = end) {
    while (end < ascending.size() && (end == begin || ascending[end] == ascending[begin])) ++end;
    std::fill(rank + begin, rank + end, static_cast<double>(begin + end + 1) / 2);
  }
  return at::zeros({values.size(0)}, at::kDouble).index_copy(0, order, ranks);
}

}  // namespace

double spearman_of(const at::Tensor& first, const at::Tensor& second) {
  const at::Tensor moments = moments_of(ranks_of(first), ranks_of(second));
  return Pearson::of([&](int64_t kind) { return moments[kind].item<double>(); });
}

namespace {

struct SpearmanCorr : EachOutput {
  static void describe(Fields<SpearmanCorr>& f) { EachOutput::describe_into(f); }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    const int64_t columns = num_columns(in);
    const auto take = [columns](const Tensors& inputs) { return columns_of(inputs, columns); };
    const auto finish = [own = *this, columns](const Tensors& rows) -> Figures {
      if (rows[0].size(0) == 0) return own.with_each(NAN, std::vector<double>(static_cast<size_t>(columns), NAN));
      std::vector<double> figures;
      for (int64_t i = 0; i < columns; ++i) {
        figures.push_back(spearman_of(rows[0].select(1, i), rows[1].select(1, i)));
      }
      return own.with_each(mean(figures), figures);
    };
    const at::Tensor none = at::zeros({0, columns}, at::kDouble);
    auto metric = std::make_unique<GatherMetric>(MonitorMode::kMax, Tensors{none, none}, take, finish);
    metric->set_num_labels(columns);
    return metric;
  }
};

}  // namespace

void add_regression_metrics(MetricRegistry& metrics) {
  metrics.add<MeanError<Measure::kSquare>>("MSE", "mean of the squared differences between output and target");
  metrics.add<MeanError<Measure::kRootSquare>>("RMSE", "square root of the mean of the squared differences");
  metrics.add<MeanError<Measure::kAbsolute>>("MAE", "mean of the absolute differences between output and target");
  metrics.add<MeanError<Measure::kShare>>("MAPE",
                                          "mean of the absolute differences between output and target as shares of the "
                                          "target: 0.05 is 5 %; targets nearer to 0 than 1.17e-6 count as 1.17e-6");
  metrics.add<MomentMetric<Determination>>(
      "R2", "share of the target's variance that the output explains; the mean over the elements of a sample");
  metrics.add<MomentMetric<Pearson>>("PearsonCorr",
                                     "linear correlation of output and target; the mean over the elements of a sample");
  metrics.add<SpearmanCorr>("SpearmanCorr",
                            "correlation of the ranks of output and target; the mean over the elements of a sample");
}

}  // namespace trainrun
