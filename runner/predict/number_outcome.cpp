// One number of each sample, or several, in the units of the data; with its standard deviation where the model gives one.
#include <ATen/ops/sqrt.h>

#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

class NumberOutcome : public Outcome {
 public:
  NumberOutcome(const OutcomeInputs& inputs, const FieldContract& target)
      : target_(target),
        is_logarithm_(inputs.is_logarithm),
        has_deviation_(gives_deviation(inputs)),
        rows_per_sample_(inputs.rows_per_sample) {
    names_ = names_of_numbers(target, inputs.output().numel() / inputs.output().size(0) / rows_per_sample_);
  }

  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor& output = batch.outputs.at(0);
    const auto rows = [&](const at::Tensor& numbers) {
      return numbers.reshape({output.size(0) * rows_per_sample_, -1});
    };
    const at::Tensor means = rows(target_.in_units(is_logarithm_ ? output.to(at::kDouble).exp() : output));
    ResultColumns columns;
    for (size_t i = 0; i < names_.size(); ++i) {
      columns.push_back({{names_[i], means.select(1, static_cast<int64_t>(i))}});
    }
    if (!has_deviation_) return columns;
    at::Tensor variance = batch.outputs.at(2).to(at::kDouble);
    if (variance.dim() < output.dim()) variance = variance.unsqueeze(-1);
    const at::Tensor deviations = rows(target_.differences_in_units(variance.clamp_min(0).sqrt().expand_as(output)));
    for (size_t i = 0; i < names_.size(); ++i) {
      columns.push_back({{"std(" + names_[i] + ")", deviations.select(1, static_cast<int64_t>(i))}});
    }
    return columns;
  }

 private:
  static bool gives_deviation(const OutcomeInputs& inputs) {
    return inputs.loss.target == LossFacts::Target::kScaled && inputs.outputs.size() > 2 && inputs.outputs[2].defined();
  }

  FieldContract target_;
  bool is_logarithm_;
  bool has_deviation_;
  int64_t rows_per_sample_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Outcome> make_number_outcome(const OutcomeInputs& inputs) {
  const at::Tensor& output = inputs.output();
  const bool has_steps = inputs.target && inputs.target->info.shape.size() == 2 && !inputs.target->names_within.empty();
  const int64_t most = has_steps || inputs.rows_per_sample > 1 ? 3 : 2;  // [N, steps, K]
  const bool fits = inputs.target && inputs.loss.learns_numbers() && output.dim() >= 1 && output.dim() <= most &&
                    output.numel() % (output.size(0) * inputs.rows_per_sample) == 0;
  return fits ? std::make_unique<NumberOutcome>(inputs, *inputs.target) : nullptr;
}

}  // namespace trainrun
