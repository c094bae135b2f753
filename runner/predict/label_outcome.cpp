// Several labels, any number of which a sample has: of each, whether it has it, and how probably.
#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

class LabelOutcome : public Outcome {
 public:
  explicit LabelOutcome(const OutcomeInputs& inputs)
      : kind_(inputs.loss.of_one), threshold_(inputs.options.threshold.value_or(kUsual)) {
    if (inputs.target) names_ = inputs.target->names_within;
    for (int64_t i = 0; names_.size() < static_cast<size_t>(inputs.output().size(1)); ++i) {
      names_.push_back("label " + std::to_string(i));
    }
  }

  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor all = probabilities_of(kind_, batch.outputs.at(0), [](const auto& x) { return at::sigmoid(x); });
    ResultColumns columns;
    for (size_t i = 0; i < names_.size(); ++i) {
      columns.push_back({{names_[i], all.select(1, static_cast<int64_t>(i)) >= threshold_}, "labels", names_[i]});
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      columns.push_back({{"p(" + names_[i] + ")", all.select(1, static_cast<int64_t>(i))}, "probabilities", names_[i]});
    }
    return columns;
  }
  bool uses_threshold() const override { return true; }

 private:
  static constexpr double kUsual = 0.5;
  LossFacts::Scores kind_;
  double threshold_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Outcome> make_label_outcome(const OutcomeInputs& inputs) {
  const at::Tensor& output = inputs.output();
  const bool has_several = output.dim() == 2 && output.size(1) > 1 && inputs.loss.of_one != LossFacts::Scores::kNone &&
                           inputs.target && inputs.target->info.shape == std::vector<int64_t>{output.size(1)};
  return has_several ? std::make_unique<LabelOutcome>(inputs) : nullptr;
}

}  // namespace trainrun
