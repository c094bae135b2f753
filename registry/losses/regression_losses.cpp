#include <ATen/ops/mse_loss.h>

#include "registry/loss.h"

namespace trainrun {
namespace {

struct MSELoss {
  std::string reduction = "mean";
  static void describe(Fields<MSELoss>& f) {
    f.optional("reduction", &MSELoss::reduction).one_of({"mean", "sum"}).doc("over all elements");
  }
  Loss build(const LayerInputs& in) const {
    in.require_inputs(2, 2);
    if (in.shape(0) != in.shape(1)) {
      throw LayerError("the output is " + shape_text(in.shape(0)) + " and the target " + shape_text(in.shape(1)) +
                       "; they must be alike");
    }
    const auto kind = reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum;
    return {nullptr, [kind](const Tensors& inputs) { return at::mse_loss(inputs[0], inputs[1], kind); }};
  }
};

}  // namespace

void add_regression_losses(LossRegistry& losses) {
  losses.add<MSELoss>("MSELoss", "mean of the squared differences of output and target, which have one shape");
}

}  // namespace trainrun
