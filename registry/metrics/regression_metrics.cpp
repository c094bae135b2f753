#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "registry/metric.h"

namespace trainrun {
namespace {

/// Sum of the squared differences, and how many.
class MSEMetric : public Metric {
 public:
  MSEMetric() { MSEMetric::reset(); }

  void update(const Tensors& inputs) override {
    TORCH_CHECK(inputs.size() == 2, "it compares 2 inputs, output and target, not ", inputs.size());
    TORCH_CHECK(inputs[0].sizes() == inputs[1].sizes(), "it compares tensors of one shape, not ",
                shape_text(inputs[0].sizes()), " and ", shape_text(inputs[1].sizes()));
    sums_[0] += (inputs[0].to(at::kDouble) - inputs[1].to(at::kDouble)).square().sum();
    sums_[1] += static_cast<double>(inputs[0].numel());
  }
  std::vector<std::pair<std::string, double>> compute() const override {
    const auto count = sums_[1].item<double>();
    return {{"", count == 0 ? 0.0 : sums_[0].item<double>() / count}};
  }
  void reset() override { sums_ = at::zeros({2}, at::kDouble); }
  std::vector<at::Tensor> sums() const override { return {sums_}; }
  void set_sums(const std::vector<at::Tensor>& sums) override { sums_ = sums.at(0); }

 private:
  at::Tensor sums_;  // [sum of squares, elements]
};

struct MSE {
  static void describe(Fields<MSE>&) {}
  std::unique_ptr<Metric> build(const MetricInputs&) const { return std::make_unique<MSEMetric>(); }
};

}  // namespace

void add_regression_metrics(MetricRegistry& metrics) {
  metrics.add<MSE>("MSE", "mean of the squared differences of output and target");
}

}  // namespace trainrun
