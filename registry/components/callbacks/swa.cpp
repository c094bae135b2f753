#include "registry/components/callbacks/averaged_weights.h"

namespace trainrun {
namespace {

struct SWA {
  int64_t start_step = 0;
  int64_t every_steps = 1;
  bool use_buffers = true;
  bool update_bn = false;
  bool use_for_evaluation = true;
  static void describe(Fields<SWA>& f) {
    f.required("start_step", &SWA::start_step)
        .at_least(1)
        .unit("optimizer steps")
        .doc("the step whose weights begin the average");
    f.optional("every_steps", &SWA::every_steps)
        .at_least(1)
        .unit("optimizer steps")
        .doc("interval between two steps whose weights are averaged, usually the steps of an epoch");
    f.optional("use_buffers", &SWA::use_buffers)
        .doc(
            "average the layers' buffers (such as BatchNorm's running means) as well; otherwise the model's own are "
            "used, which belong to other weights");
    f.optional("update_bn", &SWA::update_bn)
        .doc(
            "after training, estimate BatchNorm's running statistics again for the averaged weights, in one more pass "
            "over the training data, as torch.optim.swa_utils.update_bn does");
    f.optional("use_for_evaluation", &SWA::use_for_evaluation)
        .doc("evaluate with the averaged weights once there are any; checkpoints have both");
    f.relation(
        nlohmann::json::parse(R"({"if": {"required": ["update_bn"], "properties": {"update_bn": {"const": true}}},
                                         "then": {"properties": {"use_buffers": {"not": {"const": false}}}}})"));
  }
  void check(Checker& checker) const {
    if (update_bn && !use_buffers)
      checker.fail("update_bn", "needs use_buffers: true, as it changes the average's buffers");
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

/// Source: Izmailov et al. 2018, "Averaging weights leads to wider optima and better generalization"; semantics of
/// torch.optim.swa_utils.AveragedModel: all weights that count have the same share.
class EqualAverage : public AveragedWeights {
 public:
  explicit EqualAverage(const SWA& options)
      : AveragedWeights("SWA", options.use_buffers, options.use_for_evaluation), options_(options) {}

  bool after_training(Run& run) override {
    return options_.update_bn && estimate_batch_norms(run) && options_.use_for_evaluation;
  }

 protected:
  bool counts(int64_t step) const override {
    return step >= options_.start_step && (step - options_.start_step) % options_.every_steps == 0;
  }
  double share_of_new(int64_t num_averaged) const override { return 1 / static_cast<double>(num_averaged + 1); }
  int64_t num_counted(int64_t step) const override {
    return step < options_.start_step ? 0 : (step - options_.start_step) / options_.every_steps + 1;
  }

 private:
  SWA options_;
};

std::unique_ptr<Callback> SWA::build(const CallbackInputs&) const { return std::make_unique<EqualAverage>(*this); }

}  // namespace

void add_swa(CallbackRegistry& callbacks) {
  callbacks.add<SWA>("SWA",
                     "the mean of the weights of many steps (stochastic weight averaging), which evaluations use");
}

}  // namespace trainrun
