#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/where.h>

#include "registry/losses/loss_of.h"

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
  static void describe(Fields<DPOLoss>& f) {
    f.optional("beta", &DPOLoss::beta)
        .greater_than(0)
        .doc("how closely the model keeps to the reference; ipo: the target of the difference is 1 / (2 beta)");
    f.optional("loss_type", &DPOLoss::loss_type).doc("what is made of the difference between the two answers");
    f.optional("label_smoothing", &DPOLoss::label_smoothing)
        .at_least(0)
        .less_than(0.5)
        .doc("sigmoid: the share of pairs whose answers may have been swapped by mistake");
    f.rule({.when = {the("label_smoothing").is_above(0)},
            .all = {the("loss_type").is("sigmoid")},
            .at = "label_smoothing",
            .message = "is for loss_type: sigmoid"});
  }

  Loss build(const LayerInputs& in) const {
    require_roles(in, {"output", "chosen_labels", "rejected_labels", "reference"});
    const at::IntArrayRef logits = in.shape(0);
    if (logits.size() != 3) throw LayerError("its output is [2 N, T, C], not " + shape_text(logits));
    if (in.shape(3) != logits) {
      throw LayerError("the output is " + shape_text(logits) + " and the reference's " + shape_text(in.shape(3)) +
                       "; they must have the same shape");
    }
    for (const size_t labels : {1, 2}) {
      const bool fits = in.shape(labels).size() == 2 && in.shape(labels)[1] == logits[1] &&
                        in.examples[labels].scalar_type() == at::kLong;
      if (!fits) {
        throw LayerError("labels are integers [N, " + std::to_string(logits[1]) + "], not " +
                         shape_text(in.shape(labels)));
      }
    }
    return {nullptr, [own = *this](const Tensors& inputs) { return own.of(inputs); }};
  }

 private:
  /// [2 N]: the log-probability of each answer, or the mean of its tokens'.
  at::Tensor answers(const at::Tensor& logits, const at::Tensor& labels) const {
    const at::Tensor counts = labels >= 0;
    const at::Tensor each = at::log_softmax(logits, -1).gather(2, labels.clamp_min(0).unsqueeze(2));
    const at::Tensor sum = at::where(counts, each.squeeze(2), 0).sum(1);
    return loss_type == PreferenceLossType::kIpo ? sum / counts.sum(1).clamp_min(1) : sum;
  }

  at::Tensor of(const Tensors& inputs) const {
    const at::Tensor labels = at::cat({inputs[1], inputs[2]});
    TORCH_CHECK(labels.size(0) == inputs[0].size(0), "the output is of ", inputs[0].size(0), " texts, but there are ",
                inputs[1].size(0), " chosen and ", inputs[2].size(0),
                " rejected ones; have the model read both, the chosen ones first");
    const at::Tensor gained = answers(inputs[0], labels) - answers(inputs[3], labels);
    const Tensors halves = gained.chunk(2);
    const at::Tensor margin = halves[0] - halves[1];
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
      "direct preference optimization: the chosen answer shall gain more on a frozen reference (`models`) than the "
      "rejected one; inputs: [output, chosen_labels, rejected_labels, reference], labels shifted already");
}

}  // namespace trainrun
