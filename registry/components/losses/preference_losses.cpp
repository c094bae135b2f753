#include <ATen/TensorOperators.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/relu.h>

#include "registry/components/losses/loss_of.h"
#include "registry/components/losses/preferences.h"
#include "registry/components/losses/without_dropout.h"

// Losses that prefer one answer to another.

namespace trainrun {
namespace {

enum class PreferenceLossType { kSigmoid, kHinge, kIpo };

}  // namespace

template <>
struct Words<PreferenceLossType> {
  static constexpr std::array kWords = {"sigmoid", "hinge", "ipo"};
};

namespace {

/// Sources: Rafailov et al. 2023, "Direct Preference Optimization"; hinge: Zhao et al. 2023, "SLiC-HF"; ipo: Azar et al.
/// 2023, "A General Theoretical Paradigm to Understand Learning from Human Preferences". As trl's DPOTrainer has them.
struct DPOLoss {
  double beta = 0.1;
  PreferenceLossType loss_type = PreferenceLossType::kSigmoid;
  double label_smoothing = 0;
  bool disable_dropout = true;
  static void describe(Fields<DPOLoss>& f) {
    f.optional("beta", &DPOLoss::beta)
        .greater_than(0)
        .doc("how closely the model keeps to the reference; ipo: the target of the difference is 1 / (2 beta)");
    f.optional("loss_type", &DPOLoss::loss_type)
        .doc("how the loss is computed from the difference between the two answers");
    f.optional("label_smoothing", &DPOLoss::label_smoothing)
        .at_least(0)
        .less_than(0.5)
        .doc("sigmoid: the share of pairs whose answers may have been swapped by mistake");
    f.optional("disable_dropout", &DPOLoss::disable_dropout)
        .doc(
            "train the model without dropout, adapters' included, and without any other randomness in its layers, as "
            "trl does: it then differs from the reference only by what it has learnt, and the first loss of sigmoid is "
            "ln 2");
    f.rule({.when = {the("label_smoothing").is_above(0)},
            .all = {the("loss_type").is("sigmoid")},
            .at = "label_smoothing",
            .message = "is for loss_type: sigmoid"});
  }

  static LossFacts facts(const LayerInputs&) {
    LossFacts facts;
    facts.target = LossFacts::Target::kOther;
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output", "chosen_labels", "rejected_labels", "reference"});
    check_preferences(in);
    return {disable_dropout ? std::make_shared<WithoutDropout>() : nullptr,
            [own = *this](const Tensors& inputs) { return own.of(inputs); }};
  }

 private:
  at::Tensor of(const Tensors& inputs) const {
    const auto [chosen, rejected] = gains_of(inputs, /*mean=*/loss_type == PreferenceLossType::kIpo);
    const at::Tensor margin = chosen - rejected;
    if (loss_type == PreferenceLossType::kHinge) return at::relu(1 - beta * margin).mean();
    if (loss_type == PreferenceLossType::kIpo) return (margin - 1 / (2 * beta)).square().mean();
    return -(at::log_sigmoid(beta * margin) * (1 - label_smoothing) + at::log_sigmoid(-beta * margin) * label_smoothing)
                .mean();
  }
};

}  // namespace

void add_preference_losses(LossRegistry& losses) {
  losses.add<DPOLoss>(
      "DPOLoss",
      "direct preference optimization: the chosen answer should gain more on a frozen reference (`models`) than the "
      "rejected one; inputs: [output, chosen_labels, rejected_labels, reference], labels already shifted");
}

}  // namespace trainrun
