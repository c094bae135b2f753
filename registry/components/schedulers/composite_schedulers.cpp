#include <algorithm>

#include "registry/components/schedulers/chainable.h"

namespace trainrun {
namespace {

using Parts = std::vector<Component<SchedulerKind>>;

/// What neither can have within: schedulers that wait for a metric, and counts in two units.
void check_parts(const Parts& parts, Checker& checker) {
  if (parts.empty()) checker.fail("schedulers", "needs at least one scheduler");
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string place = "schedulers[" + std::to_string(i) + "]: ";
    if (!parts[i].build({{GroupRates{}}, 1})->monitor().empty()) {
      checker.fail("schedulers", place + parts[i].type + " waits for a metric, and can only stand alone");
    }
    if (parts[i].written.find("interval")) {
      checker.fail("schedulers", place + "interval counts for all; write it beside schedulers");
    }
  }
}

/// Schedulers that work on the same rates, and what they remember.
class Composite : public ChainableScheduler {
 public:
  Composite(const SchedulerInputs& inputs, std::vector<std::unique_ptr<Scheduler>> parts)
      : ChainableScheduler(inputs), parts_(std::move(parts)) {}

  nlohmann::json state() const override {
    nlohmann::json state = nlohmann::json::array();
    bool any = false;
    for (const auto& part : parts_) {
      state.push_back(part->state());
      any = any || !state.back().is_null();
    }
    return any ? state : nlohmann::json();
  }
  void load_state(const nlohmann::json& state) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!state.at(i).is_null()) parts_[i]->load_state(state.at(i));
    }
  }

 protected:
  void advance_part(size_t i, int64_t t, std::vector<GroupRates>& rates) {
    if (auto* chainable = dynamic_cast<ChainableScheduler*>(parts_[i].get())) {
      chainable->advance(t, rates);
    } else {
      parts_[i]->set(t, rates);
    }
  }
  void let_take_over(size_t i, std::vector<GroupRates>& rates) {
    if (auto* chainable = dynamic_cast<ChainableScheduler*>(parts_[i].get())) {
      chainable->take_over(rates);
    } else {
      parts_[i]->set(0, rates);
    }
  }
  std::vector<std::unique_ptr<Scheduler>> parts_;
};

/// Semantics of torch.optim.lr_scheduler.ChainedScheduler.
class Chained : public Composite {
 public:
  using Composite::Composite;
  void advance(int64_t t, std::vector<GroupRates>& rates) override {
    for (size_t i = 0; i < parts_.size(); ++i) advance_part(i, t, rates);
  }
};

struct ChainedScheduler {
  Parts schedulers;
  static void describe(Fields<ChainedScheduler>& f) {
    f.required("schedulers", &ChainedScheduler::schedulers)
        .doc("each changes the rates that the ones before it returned for the same step");
  }
  void check(Checker& checker) const { check_parts(schedulers, checker); }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    std::vector<std::unique_ptr<Scheduler>> parts;
    for (const auto& part : schedulers) parts.push_back(part.build(inputs));
    return std::make_unique<Chained>(inputs, std::move(parts));
  }
};

/// Semantics of torch.optim.lr_scheduler.SequentialLR.
class Sequential : public Composite {
 public:
  Sequential(const SchedulerInputs& inputs, std::vector<std::unique_ptr<Scheduler>> parts,
             std::vector<int64_t> milestones)
      : Composite(inputs, std::move(parts)), milestones_(std::move(milestones)) {}
  void advance(int64_t t, std::vector<GroupRates>& rates) override {
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), t);
    const auto i = static_cast<size_t>(next - milestones_.begin());
    const int64_t begin = i == 0 ? 0 : milestones_[i - 1];
    if (i > 0 && t == begin) {
      let_take_over(i, rates);
    } else {
      advance_part(i, t - begin, rates);
    }
  }

 private:
  std::vector<int64_t> milestones_;
};

struct SequentialLR {
  Parts schedulers;
  std::vector<int64_t> milestones;
  static void describe(Fields<SequentialLR>& f) {
    f.required("schedulers", &SequentialLR::schedulers)
        .doc("one after the other; for each, `the whole job` means its own stretch");
    f.required("milestones", &SequentialLR::milestones).at_least(1).doc("when the second, the third, … begins");
  }
  void check(Checker& checker) const {
    check_parts(schedulers, checker);
    if (!schedulers.empty() && milestones.size() + 1 != schedulers.size()) {
      checker.fail("milestones", "needs one fewer than schedulers: " + std::to_string(schedulers.size() - 1) +
                                     ", not " + std::to_string(milestones.size()));
    }
    const bool rising =
        std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) == milestones.end();
    if (!rising) checker.fail("milestones", "must be ascending");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    std::vector<std::unique_ptr<Scheduler>> parts;
    int64_t begin = 0;
    for (size_t i = 0; i < schedulers.size(); ++i) {
      const int64_t end = i < milestones.size() ? milestones[i] : inputs.total_steps;
      parts.push_back(schedulers[i].build({inputs.base, std::max<int64_t>(1, end - begin)}));
      begin = end;
    }
    return std::make_unique<Sequential>(inputs, std::move(parts), milestones);
  }
};

}  // namespace

void add_composite_schedulers(SchedulerRegistry& schedulers) {
  schedulers.add<ChainedScheduler>(
      "ChainedScheduler", "several schedulers at once, each changing the rates that the one before it returned");
  schedulers.add<SequentialLR>("SequentialLR", "several schedulers one after the other, from milestone to milestone");
}

}  // namespace trainrun
