#pragma once

#include <utility>

#include "registry/kinds/scheduler.h"

namespace trainrun {

/// A scheduler whose rate is a function of `t` and the group's base rate: `rate(t, base)`.
template <class Rate>
class ClosedForm : public Scheduler {
 public:
  ClosedForm(const SchedulerInputs& inputs, Rate rate) : base_(inputs.base), rate_(std::move(rate)) {}
  void set(int64_t t, std::vector<GroupRates>& rates) override {
    for (size_t i = 0; i < rates.size(); ++i) rates[i].lr = rate_(t, base_[i].lr);
  }

 private:
  std::vector<GroupRates> base_;
  Rate rate_;
};

template <class Rate>
std::unique_ptr<Scheduler> closed_form(const SchedulerInputs& inputs, Rate rate) {
  return std::make_unique<ClosedForm<Rate>>(inputs, std::move(rate));
}

}  // namespace trainrun
