#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "registry/metric.h"

namespace trainrun {
namespace {

/// How many samples were right, of how many.
class AccuracyMetric : public Metric {
 public:
  explicit AccuracyMetric(int64_t ignore_index) : ignore_index_(ignore_index) { AccuracyMetric::reset(); }

  void update(const Tensors& inputs) override {
    TORCH_CHECK(inputs.size() == 2, "it compares 2 inputs, output and target, not ", inputs.size());
    const at::Tensor predicted = inputs[0].argmax(1);  // [N, …]
    const at::Tensor& target = inputs[1];
    TORCH_CHECK(predicted.sizes() == target.sizes(), "it compares logits [N, C, …] with class indices [N, …], not ",
                shape_text(inputs[0].sizes()), " and ", shape_text(target.sizes()));
    const at::Tensor counted = target != ignore_index_;
    counts_[0] += (predicted.eq(target) & counted).sum();
    counts_[1] += counted.sum();
  }
  std::vector<std::pair<std::string, double>> compute() const override {
    const auto total = counts_[1].item<int64_t>();
    return {{"", total == 0 ? 0.0 : static_cast<double>(counts_[0].item<int64_t>()) / static_cast<double>(total)}};
  }
  void reset() override { counts_ = at::zeros({2}, at::kLong); }
  std::vector<at::Tensor> sums() const override { return {counts_}; }
  void set_sums(const std::vector<at::Tensor>& sums) override { counts_ = sums.at(0); }

 private:
  int64_t ignore_index_;
  at::Tensor counts_;  // [right, counted]
};

struct Accuracy {
  int64_t ignore_index = -100;
  static void describe(Fields<Accuracy>& f) {
    f.optional("ignore_index", &Accuracy::ignore_index).doc("targets of this value do not count");
  }
  std::unique_ptr<Metric> build(const MetricInputs&) const { return std::make_unique<AccuracyMetric>(ignore_index); }
};

}  // namespace

void add_classification_metrics(MetricRegistry& metrics) {
  metrics.add<Accuracy>("Accuracy", "share of targets whose logit is the largest");
}

}  // namespace trainrun
