#include <ATen/TensorOperators.h>
#include <ATen/ops/pairwise_distance.h>

#include "registry/components/metrics/accumulators.h"

namespace trainrun {
namespace {

struct TripletAccuracy {
  double p = 2;

  static void describe(Fields<TripletAccuracy>& f) {
    f.optional("p", &TripletAccuracy::p).at_least(0).doc("of the distance's p-norm");
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(3, 3);
    for (const size_t i : {size_t{1}, size_t{2}}) {
      if (in.shape(i) == in.shape(0)) continue;
      throw LayerError("anchor " + shape_text(in.shape(0)) + ", positive " + shape_text(in.shape(1)) +
                       " and negative " + shape_text(in.shape(2)) + " must have the same shape");
    }
    const auto add = [p = p](const Tensors& inputs) {
      const at::Tensor right =
          at::pairwise_distance(inputs[0], inputs[1], p).lt(at::pairwise_distance(inputs[0], inputs[2], p));
      return sum_and_count(right);
    };
    const auto finish = [](const std::vector<double>& sums) -> Figures { return {{"", mean_of(sums)}}; };
    return std::make_unique<SumMetric>(MonitorMode::kMax, std::vector<int64_t>{2}, add, finish);
  }
};

}  // namespace

void add_embedding_metrics(MetricRegistry& metrics) {
  metrics.add<TripletAccuracy>("TripletAccuracy",
                               "share of the anchors that are nearer to the positive than to the negative; inputs: "
                               "[anchor, positive, negative]");
}

}  // namespace trainrun
