#include "registry/components/callbacks/sample_losses.h"

#include "registry/kinds/callback.h"

namespace trainrun {
namespace {

struct SampleLosses {
  static void describe(Fields<SampleLosses>&) {}
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

/// All is in the run's book; without one, as in `trainrun eval`, there is nothing to do.
class SampleLossKeeper : public Callback, public KeepsSampleLosses {
 public:
  bool reads_gradients(bool) const override { return false; }
  void use(SampleLossBook& book) override { book_ = &book; }
  void after_step(Run&, const StepResult&) override {
    if (book_) book_->keep_step();
  }
  bool after_training(Run&) override {
    if (book_) book_->keep_all();
    return false;
  }
  void save(Run&, Snapshot& snapshot) const override {
    if (book_) book_->save(snapshot);
  }
  void load(Run&, const Snapshot& snapshot) override {
    if (book_) book_->load(snapshot);
  }

 private:
  SampleLossBook* book_ = nullptr;
};

std::unique_ptr<Callback> SampleLosses::build(const CallbackInputs&) const {
  return std::make_unique<SampleLossKeeper>();
}

}  // namespace

void add_sample_losses(CallbackRegistry& callbacks) {
  callbacks.add<SampleLosses>("SampleLosses",
                              "writes each training sample's loss in each epoch to sample_losses/ in the run's folder; "
                              "`trainrun report` shows samples whose loss stays high: suspect labels");
}

}  // namespace trainrun
