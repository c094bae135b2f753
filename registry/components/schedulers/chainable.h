#pragma once

#include <cmath>
#include <utility>

#include "registry/kinds/scheduler.h"

namespace trainrun {

/// A scheduler that makes the next rates from the last ones, as most of PyTorch's do, so that several can work on the
/// same rates (ChainedScheduler) or one after the other (SequentialLR). Alone it is a function of `t` all the same:
/// `set` goes on from the step it was asked for last, or begins anew, so a checkpoint keeps nothing.
class ChainableScheduler : public Scheduler {
 public:
  explicit ChainableScheduler(const SchedulerInputs& inputs) : base_(inputs.base), now_(inputs.base) {}

  /// From the rates of step `t - 1` to those of step `t`; at `t` = 0 from the base rates.
  virtual void advance(int64_t t, std::vector<GroupRates>& rates) = 0;
  /// From the rates that another scheduler left to those of this one's step 0: SequentialLR at a milestone.
  virtual void take_over(std::vector<GroupRates>& rates) {
    for (size_t i = 0; i < rates.size(); ++i) rates[i].lr = base_[i].lr;
    advance(0, rates);
  }

  void set(int64_t t, std::vector<GroupRates>& rates) override {
    if (t < t_) t_ = -1;
    if (t_ < 0) now_ = base_;
    while (t_ < t) advance(++t_, now_);
    rates = now_;
  }

 protected:
  std::vector<GroupRates> base_;

 private:
  std::vector<GroupRates> now_;  // the rates of step t_
  int64_t t_ = -1;
};

/// Each group on its own: `next(t, lr, base)` is the rate of step `t` after `lr`.
template <class Next>
class Recurrence : public ChainableScheduler {
 public:
  Recurrence(const SchedulerInputs& inputs, Next next) : ChainableScheduler(inputs), next_(std::move(next)) {}
  void advance(int64_t t, std::vector<GroupRates>& rates) override {
    for (size_t i = 0; i < rates.size(); ++i) rates[i].lr = next_(t, rates[i].lr, base_[i].lr);
  }

 private:
  Next next_;
};

template <class Next>
std::unique_ptr<Scheduler> recurrence(const SchedulerInputs& inputs, Next next) {
  return std::make_unique<Recurrence<Next>>(inputs, std::move(next));
}

}  // namespace trainrun
