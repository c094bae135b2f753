// Quantiles of one number of each sample, or of each of several, in the units of the data.
#include "registry/language/text_forms.h"
#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

class QuantileOutcome : public Outcome {
 public:
  QuantileOutcome(const OutcomeInputs& inputs, const FieldContract& target)
      : target_(target), quantiles_(inputs.quantiles), rows_per_sample_(inputs.rows_per_sample) {
    const int64_t all = inputs.output().numel() / inputs.output().size(0) / rows_per_sample_;
    names_ = names_of_numbers(target, all / static_cast<int64_t>(quantiles_.size()));
  }

  /// "price q0.1", "price q0.5", …: number by number.
  ResultColumns columns(const PredictedBatch& batch) override {
    const at::Tensor& output = batch.outputs.at(0);
    std::vector<at::Tensor> rows;  // of each quantile: [rows, numbers]
    for (size_t i = 0; i < quantiles_.size(); ++i) {
      const at::Tensor own = target_.in_units(output.select(-1, static_cast<int64_t>(i)));
      rows.push_back(own.reshape({output.size(0) * rows_per_sample_, -1}));
    }
    ResultColumns columns;
    for (size_t number = 0; number < names_.size(); ++number) {
      for (size_t i = 0; i < quantiles_.size(); ++i) {
        columns.push_back(
            {{names_[number] + " q" + in_figures(quantiles_[i], 6), rows[i].select(1, static_cast<int64_t>(number))}});
      }
    }
    return columns;
  }

 private:
  FieldContract target_;
  std::vector<double> quantiles_;
  int64_t rows_per_sample_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Outcome> make_quantile_outcome(const OutcomeInputs& inputs) {
  const at::Tensor& output = inputs.output();
  const bool fits = inputs.target && !inputs.quantiles.empty() && output.dim() >= 2 &&
                    output.size(-1) == static_cast<int64_t>(inputs.quantiles.size());
  return fits ? std::make_unique<QuantileOutcome>(inputs, *inputs.target) : nullptr;
}

}  // namespace trainrun
