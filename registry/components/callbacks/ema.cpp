#include "registry/components/callbacks/averaged_weights.h"

namespace trainrun {
namespace {

struct EMA {
  double decay = 0.999;
  bool use_buffers = false;
  bool use_for_evaluation = true;
  static void describe(Fields<EMA>& f) {
    f.optional("decay", &EMA::decay)
        .at_least(0)
        .at_most(1)
        .doc("share of the average that is kept at each optimizer step; the rest comes from the new weights");
    f.optional("use_buffers", &EMA::use_buffers)
        .doc(
            "average the layers' buffers (such as BatchNorm's running means) as well; otherwise the model's own are "
            "used");
    f.optional("use_for_evaluation", &EMA::use_for_evaluation)
        .doc("evaluate with the averaged weights, while training and in `trainrun eval`; checkpoints have both");
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

/// Source: Polyak & Juditsky 1992, "Acceleration of stochastic approximation by averaging"; semantics of
/// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn: the first step's weights begin the average.
class ExponentialAverage : public AveragedWeights {
 public:
  explicit ExponentialAverage(const EMA& options)
      : AveragedWeights("EMA", options.use_buffers, options.use_for_evaluation), decay_(options.decay) {}

 protected:
  bool counts(int64_t) const override { return true; }
  double share_of_new(int64_t) const override { return 1 - decay_; }
  int64_t num_counted(int64_t step) const override { return step; }

 private:
  double decay_;
};

std::unique_ptr<Callback> EMA::build(const CallbackInputs&) const {
  return std::make_unique<ExponentialAverage>(*this);
}

}  // namespace

void add_ema(CallbackRegistry& callbacks) {
  callbacks.add<EMA>("EMA", "an exponential moving average of the weights, which evaluations use");
}

}  // namespace trainrun
