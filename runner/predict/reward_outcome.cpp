// The scores that a reward model gives to answers.
#include "runner/predict/outcome.h"

namespace trainrun {
namespace {

class RewardOutcome : public Outcome {
 public:
  explicit RewardOutcome(bool are_single) : are_single_(are_single) {}
  ResultColumns columns(const PredictedBatch& batch) override {
    const std::vector<at::Tensor> halves =
        batch.outputs.at(0).flatten().chunk(2);            // of chosen answers, of rejected ones
    if (are_single_) return {{{"reward", halves.at(0)}}};  // each answer was both
    return {{{"reward(chosen)", halves.at(0)}}, {{"reward(rejected)", halves.at(1)}}};
  }

 private:
  bool are_single_;
};

}  // namespace

std::unique_ptr<Outcome> make_reward_outcome(const OutcomeInputs& inputs) {
  const at::Tensor& output = inputs.output();
  const bool are_scores = output.dim() == 2 && output.size(1) == 1 && output.size(0) % 2 == 0 &&
                          inputs.contract.field("chosen_input_ids") && inputs.loss.of_one == LossFacts::Scores::kNone &&
                          !inputs.loss.learns_numbers();
  return are_scores ? std::make_unique<RewardOutcome>(!inputs.roots.empty()) : nullptr;
}

}  // namespace trainrun
