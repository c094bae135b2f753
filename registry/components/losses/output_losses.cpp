#include "registry/components/losses/loss_of.h"

namespace trainrun {
namespace {

struct OutputLoss {
  Reduction reduction = Reduction::kMean;
  static void describe(Fields<OutputLoss>& f) {
    f.optional("reduction", &OutputLoss::reduction)
        .one_of({"mean", "sum"})
        .doc("how the layer's output is reduced to one number");
  }
  LossFacts facts(const LayerInputs&) const {
    LossFacts facts;
    facts.target = LossFacts::Target::kOther;
    facts.sums = reduction == Reduction::kSum;
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    if (in.examples.size() != 1) throw LayerError("it reads one output of a layer; write inputs: [NAME]");
    if (!in.examples[0].is_floating_point()) throw LayerError("it needs numbers of floating point");
    return {nullptr, [mean = reduction == Reduction::kMean](const Tensors& inputs) {
              return mean ? inputs[0].mean() : inputs[0].sum();
            }};
  }
};

}  // namespace

void add_output_losses(LossRegistry& losses) {
  losses.add<OutputLoss>("OutputLoss",
                         "the mean or sum of a layer's output is the loss; for layers with a loss of their own "
                         "(AdaptiveLogSoftmaxWithLoss) and for penalties");
}

}  // namespace trainrun
