#include <cmath>
#include <numbers>

#include "registry/schedulers/closed_form.h"

namespace trainrun {
namespace {

/// The schedules of Hugging Face transformers' get_linear_… and get_cosine_schedule_with_warmup.
struct Warmup {
  int64_t warmup_steps = 0;
  std::optional<double> warmup_ratio;
  std::optional<int64_t> total_steps;

  int64_t total(const SchedulerInputs& inputs) const { return total_steps.value_or(inputs.total_steps); }
  int64_t warmup(const SchedulerInputs& inputs) const {
    if (!warmup_ratio) return warmup_steps;
    return static_cast<int64_t>(std::ceil(*warmup_ratio * static_cast<double>(total(inputs))));
  }
  void check(Checker& checker) const {
    if (warmup_ratio && warmup_steps > 0) checker.fail("warmup_ratio", "give warmup_steps or warmup_ratio, not both");
  }
};

template <class T>
void describe_warmup(Fields<T>& f) {
  f.optional("warmup_steps", &T::warmup_steps).at_least(0).doc("the rate rises from 0 in so many");
  f.optional("warmup_ratio", &T::warmup_ratio).at_least(0).at_most(1).doc("or in this share of the whole job");
  f.optional("total_steps", &T::total_steps).at_least(1).doc("when it ends; the whole job by default");
  f.relation(nlohmann::json::parse(
      R"({"if": {"required": ["warmup_ratio"], "properties": {"warmup_ratio": {"type": "number"}}},
          "then": {"properties": {"warmup_steps": {"maximum": 0}}}})"));
}

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

struct LinearWithWarmup : Warmup {
  static void describe(Fields<LinearWithWarmup>& f) { describe_warmup(f); }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs, [rise = warmup(inputs), end = total(inputs)](int64_t t, double base) {
      return base * (t < rise ? ratio(t, rise) : std::max(0.0, ratio(end - t, end - rise)));
    });
  }
};

struct CosineWithWarmup : Warmup {
  double num_cycles = 0.5;
  static void describe(Fields<CosineWithWarmup>& f) {
    describe_warmup(f);
    f.optional("num_cycles", &CosineWithWarmup::num_cycles)
        .at_least(0)
        .doc("periods of the cosine; 0.5 goes down to 0 once");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs,
                       [rise = warmup(inputs), end = total(inputs), cycles = num_cycles](int64_t t, double base) {
                         if (t < rise) return base * ratio(t, rise);
                         const double done = ratio(t - rise, end - rise);
                         return base * std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * done)));
                       });
  }
};

}  // namespace

void add_warmup_schedulers(SchedulerRegistry& schedulers) {
  schedulers.add<LinearWithWarmup>("LinearWithWarmup", "up from 0, then down to 0, along straight lines");
  schedulers.add<CosineWithWarmup>("CosineWithWarmup", "up from 0 along a line, then down along a cosine");
}

}  // namespace trainrun
