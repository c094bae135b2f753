#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/where.h>

#include "registry/components/losses/loss_of.h"
#include "registry/components/losses/preferences.h"
#include "registry/components/losses/without_dropout.h"
#include "registry/kinds/communicator.h"

// Losses by which a model learns what people prefer, beside those of preference_losses.cpp. As trl has them.

namespace trainrun {
namespace {

constexpr const char* kDropoutHelp =
    "train the model without dropout and without any other randomness in its layers, as trl does";

std::shared_ptr<WithoutDropout> dropout_state(bool disable) {
  return disable ? std::make_shared<WithoutDropout>() : nullptr;
}

LossFacts facts_of_pairs() {
  LossFacts facts;
  facts.target = LossFacts::Target::kOther;
  return facts;
}

/// log(1 - exp(x)) for x < 0, by whichever formula loses nothing.
at::Tensor log_one_minus_exp(const at::Tensor& x) {
  constexpr double kBorder = -0.6931471805599453;
  const at::Tensor far = at::log1p(-x.clamp_max(kBorder).exp());
  const at::Tensor near = (-at::expm1(x.clamp_min(kBorder))).log();
  return at::where(x < kBorder, far, near);
}

/// The mean negative log-probability of all tokens of the texts `ids` [N, T] that `mask` counts, but for the first.
at::Tensor text_loss(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& mask) {
  const int64_t length = ids.size(1) - 1;
  const at::Tensor labels = at::where(mask.narrow(1, 1, length) > 0, ids.narrow(1, 1, length), -100);
  const at::Tensor sum = log_probabilities(logits.narrow(1, 0, length), labels, /*mean=*/false).sum();
  return -sum / (labels >= 0).sum().clamp_min(1);
}

/// Source: Hong et al. 2024, "ORPO: Monolithic Preference Optimization without Reference Model".
struct ORPOLoss {
  double beta = 0.1;
  bool disable_dropout = true;
  static void describe(Fields<ORPOLoss>& f) {
    f.optional("beta", &ORPOLoss::beta).at_least(0).doc("weight of the odds ratio beside the loss of the chosen text");
    f.optional("disable_dropout", &ORPOLoss::disable_dropout).doc(kDropoutHelp);
  }
  static LossFacts facts(const LayerInputs&) { return facts_of_pairs(); }
  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output", "chosen_labels", "rejected_labels", "chosen_input_ids", "chosen_attention_mask"});
    check_preferences(in, /*has_reference=*/false);
    for (const size_t i : {3, 4}) {
      if (in.shape(i) == in.shape(1) && in.examples[i].scalar_type() == at::kLong) continue;
      throw LayerError("chosen_input_ids and chosen_attention_mask are integers " + shape_text(in.shape(1)) +
                       ", as the labels, not " + shape_text(in.shape(i)));
    }
    return {dropout_state(disable_dropout), [own = *this](const Tensors& inputs) { return own.of(inputs); }};
  }

 private:
  at::Tensor of(const Tensors& inputs) const {
    const auto [chosen, rejected] = gains_of({inputs[0], inputs[1], inputs[2]}, /*mean=*/true);
    const at::Tensor log_odds = (chosen - rejected) - (log_one_minus_exp(chosen) - log_one_minus_exp(rejected));
    const at::Tensor of_text = text_loss(inputs[0].narrow(0, 0, inputs[3].size(0)), inputs[3], inputs[4]);
    return of_text - beta * at::log_sigmoid(log_odds).mean();
  }
};

/// Source: Meng et al. 2024, "SimPO: Simple Preference Optimization with a Reference-Free Reward"; with `alpha`, Xu et
/// al. 2024, "Contrastive Preference Optimization", as trl's CPOTrainer joins them.
struct SimPOLoss {
  double beta = 0.1;
  double gamma = 0.5;
  double alpha = 0;
  double label_smoothing = 0;
  bool disable_dropout = true;
  static void describe(Fields<SimPOLoss>& f) {
    f.optional("beta", &SimPOLoss::beta)
        .greater_than(0)
        .doc("scale of the rewards; a reward is beta times the mean log-probability of the answer's tokens");
    f.optional("gamma", &SimPOLoss::gamma)
        .at_least(0)
        .doc("by how much the chosen answer's reward should be above the other's (trl: simpo_gamma)");
    f.optional("alpha", &SimPOLoss::alpha)
        .at_least(0)
        .doc("weight of the chosen answer's own loss, the mean over its tokens (trl: cpo_alpha)");
    f.optional("label_smoothing", &SimPOLoss::label_smoothing)
        .at_least(0)
        .less_than(0.5)
        .doc("the share of pairs whose answers may have been swapped by mistake");
    f.optional("disable_dropout", &SimPOLoss::disable_dropout).doc(kDropoutHelp);
  }
  static LossFacts facts(const LayerInputs&) { return facts_of_pairs(); }
  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output", "chosen_labels", "rejected_labels"});
    check_preferences(in, /*has_reference=*/false);
    return {dropout_state(disable_dropout), [own = *this](const Tensors& inputs) { return own.of(inputs); }};
  }

 private:
  at::Tensor of(const Tensors& inputs) const {
    const auto [chosen, rejected] = gains_of(inputs, /*mean=*/true);
    const at::Tensor logits = beta * (chosen - rejected) - gamma;
    at::Tensor loss =
        -(at::log_sigmoid(logits) * (1 - label_smoothing) + at::log_sigmoid(-logits) * label_smoothing).mean();
    if (alpha == 0) return loss;
    const at::Tensor& labels = inputs[1];
    const at::Tensor sum = log_probabilities(inputs[0].narrow(0, 0, labels.size(0)), labels, /*mean=*/false).sum();
    return loss - alpha * sum / (labels >= 0).sum().clamp_min(1);
  }
};

/// Source: Bradley and Terry 1952; Ouyang et al. 2022, "Training language models to follow instructions with human
/// feedback"; the margin: Touvron et al. 2023, "Llama 2"; the centre: Eisenstein et al. 2023, "Helping or Herding?".
struct BradleyTerryLoss {
  double center_rewards_coefficient = 0;
  bool disable_dropout = true;
  static void describe(Fields<BradleyTerryLoss>& f) {
    f.optional("center_rewards_coefficient", &BradleyTerryLoss::center_rewards_coefficient)
        .at_least(0)
        .doc("weight of the mean squared sum of both rewards, which keeps rewards around 0");
    f.optional("disable_dropout", &BradleyTerryLoss::disable_dropout).doc(kDropoutHelp);
  }
  static LossFacts facts(const LayerInputs&) { return facts_of_pairs(); }
  Loss build(const LayerInputs& in) const {
    std::vector<std::string> roles = {"output"};
    if (in.examples.size() > 1) roles.emplace_back("margin");
    require_roles(in, roles);
    check_scores(in);
    if (roles.size() > 1 && (in.shape(1).size() != 1 || !at::isFloatingType(in.examples[1].scalar_type()))) {
      throw LayerError("the margin is a number of each pair, [N], not " + shape_text(in.shape(1)) +
                       "; write inputs: [output], or [output, margin]");
    }
    return {dropout_state(disable_dropout), [own = *this](const Tensors& inputs) { return own.of(inputs); }};
  }

 private:
  at::Tensor of(const Tensors& inputs) const {
    const auto [chosen, rejected] = halves_of(inputs[0]);
    at::Tensor better = chosen - rejected;
    if (inputs.size() > 1) better = better - inputs[1];
    at::Tensor loss = -at::log_sigmoid(better).mean();
    if (center_rewards_coefficient == 0) return loss;
    return loss + center_rewards_coefficient * (chosen + rejected).square().mean();
  }
};

enum class KtoLossType { kKto, kApoZeroUnpaired };

}  // namespace

template <>
struct Words<KtoLossType> {
  static constexpr std::array kWords = {"kto", "apo_zero_unpaired"};
};

namespace {

/// The mean over the ranks of a number that each has, while training; in an evaluation, in which ranks may have fewer
/// batches than others, a rank's own.
class RanksMean : public SpansRanks {
 public:
  void span(Communicator& ranks, bool) override { ranks_ = &ranks; }

 protected:
  at::Tensor mean_over_ranks(const at::Tensor& own, bool is_training) const {
    if (ranks_ == nullptr || ranks_->world_size() == 1 || !is_training || !at::GradMode::is_enabled()) return own;
    const at::Tensor sum = own.detach().reshape({1}).clone();
    ranks_->sum(sum);
    return sum[0] / ranks_->world_size();
  }

 private:
  Communicator* ranks_ = nullptr;
};

/// The state of a loss of mismatched answers. `Module`: WithoutDropout, or one that says nothing.
template <class Module>
struct MismatchedState : Module, RanksMean {
  at::Tensor mean_of(const at::Tensor& gains) const {
    return mean_over_ranks(gains.detach().mean(), this->is_training());
  }
};

/// Sources: Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization"; apo_zero_unpaired:
/// D'Oosterlinck et al. 2024, "Anchored Preference Optimization".
struct KTOLoss {
  double beta = 0.1;
  double desirable_weight = 1;
  double undesirable_weight = 1;
  KtoLossType loss_type = KtoLossType::kKto;
  bool disable_dropout = true;
  static void describe(Fields<KTOLoss>& f) {
    f.optional("beta", &KTOLoss::beta).greater_than(0).doc("how closely the model keeps to the reference");
    f.optional("desirable_weight", &KTOLoss::desirable_weight)
        .at_least(0)
        .doc(
            "weight of desirable answers; if there are more of one kind than of the other, the rarer kind should have "
            "the larger weight");
    f.optional("undesirable_weight", &KTOLoss::undesirable_weight).at_least(0).doc("of the others");
    f.optional("loss_type", &KTOLoss::loss_type)
        .doc(
            "kto: rewards are measured from the mean gain of mismatched answers in the batch (in training, of all "
            "ranks); apo_zero_unpaired: from 0");
    f.optional("disable_dropout", &KTOLoss::disable_dropout).doc(kDropoutHelp);
  }
  static LossFacts facts(const LayerInputs&) { return facts_of_pairs(); }
  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output", "labels", "kl_labels", "label", "reference"});
    check_desirable(in);
    return disable_dropout ? with_state<WithoutDropout>() : with_state<torch::nn::Module>();
  }

 private:
  template <class Module>
  Loss with_state() const {
    const auto state = std::make_shared<MismatchedState<Module>>();
    return {state, [own = *this, state](const Tensors& inputs) { return own.of(inputs, *state); }};
  }
  at::Tensor of(const Tensors& inputs, const auto& state) const {
    const auto [gains, mismatched] = desirable_gains(inputs);
    at::Tensor above = gains;
    if (loss_type == KtoLossType::kKto) above = gains - state.mean_of(mismatched).clamp_min(0);
    const at::Tensor is_desirable = inputs[3] > 0;
    const at::Tensor good = desirable_weight * (1 - (beta * above).sigmoid());
    const at::Tensor bad = undesirable_weight * (1 - (-beta * above).sigmoid());
    return at::where(is_desirable, good, bad).mean();
  }
};

}  // namespace

void add_alignment_losses(LossRegistry& losses) {
  losses.add<BradleyTerryLoss>("BradleyTerryLoss",
                               "for reward models: the chosen text's score should be above the rejected one's; inputs: "
                               "[output] or [output, margin], the chosen texts' scores first");
  losses.add<KTOLoss>("KTOLoss",
                      "desirable answers should gain on a frozen reference (`models`), others lose; inputs: [output, "
                      "labels, kl_labels, label, reference], labels already shifted");
  losses.add<ORPOLoss>(
      "ORPOLoss",
      "odds ratio preference optimization: the loss of the chosen text, and the chosen answer should be likelier than "
      "the rejected one; inputs: [output, chosen_labels, rejected_labels, chosen_input_ids, chosen_attention_mask]");
  losses.add<SimPOLoss>("SimPOLoss",
                        "the mean log-probability of the chosen answer's tokens should be above the rejected one's by "
                        "a margin; inputs: [output, chosen_labels, rejected_labels], labels already shifted");
}

}  // namespace trainrun
