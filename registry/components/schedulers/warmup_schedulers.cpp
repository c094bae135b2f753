#include <cmath>
#include <numbers>

#include "registry/components/schedulers/closed_form.h"

namespace trainrun {

/// The shape of a rise or fall.
enum class WarmupShape { kLinear, kCosine, kOneMinusSqrt };
template <>
struct Words<WarmupShape> {
  static constexpr std::array kWords = {"linear", "cosine", "1-sqrt"};
};

namespace {

/// The schedules of Hugging Face transformers (get_linear_schedule_with_warmup, …): formulas and defaults are its own.
struct Warmup {
  int64_t warmup_steps = 0;
  std::optional<double> warmup_ratio;
  std::optional<int64_t> total_steps;

  int64_t total(const SchedulerInputs& inputs) const { return total_steps.value_or(inputs.total_steps); }
  int64_t warmup(const SchedulerInputs& inputs) const {
    if (!warmup_ratio) return warmup_steps;
    return static_cast<int64_t>(std::ceil(*warmup_ratio * static_cast<double>(total(inputs))));
  }
};

template <class T>
void describe_warmup(Fields<T>& f) {
  f.optional("warmup_steps", &T::warmup_steps).at_least(0).doc("number of steps in which the rate rises from 0");
  f.optional("warmup_ratio", &T::warmup_ratio)
      .at_least(0)
      .at_most(1)
      .doc("instead of warmup_steps: the same as a share of the whole job");
  f.optional("total_steps", &T::total_steps).at_least(1).doc("when it ends; the whole job by default");
  f.rule({.when = {the("warmup_ratio").is_given()},
          .all = {the("warmup_steps").is_at_most(0)},
          .at = "warmup_ratio",
          .message = "give warmup_steps or warmup_ratio, not both"});
}

double cosine(double done) { return 0.5 * (1 + std::cos(std::numbers::pi * done)); }  // from 1 at 0 to 0 at 1

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
                         return base * std::max(0.0, cosine(cycles * 2 * done));
                       });
  }
};

struct ConstantWithWarmup : Warmup {
  static void describe(Fields<ConstantWithWarmup>& f) { describe_warmup(f); }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(
        inputs, [rise = warmup(inputs)](int64_t t, double base) { return t < rise ? base * ratio(t, rise) : base; });
  }
};

struct CosineWithHardRestarts : Warmup {
  double num_cycles = 1;
  static void describe(Fields<CosineWithHardRestarts>& f) {
    describe_warmup(f);
    f.optional("num_cycles", &CosineWithHardRestarts::num_cycles).greater_than(0).doc("how often it goes down to 0");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs,
                       [rise = warmup(inputs), end = total(inputs), cycles = num_cycles](int64_t t, double base) {
                         if (t < rise) return base * ratio(t, rise);
                         const double done = ratio(t - rise, end - rise);
                         return done >= 1 ? 0 : base * cosine(std::fmod(cycles * done, 1.0));
                       });
  }
};

struct PolynomialWithWarmup : Warmup {
  double lr_end = 1e-7;
  double power = 1;
  static void describe(Fields<PolynomialWithWarmup>& f) {
    describe_warmup(f);
    f.optional("lr_end", &PolynomialWithWarmup::lr_end).at_least(0).doc("the rate at the end, of every group");
    f.optional("power", &PolynomialWithWarmup::power).at_least(0).doc("of what remains");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs, [*this, rise = warmup(inputs), end = total(inputs)](int64_t t, double base) {
      if (t < rise) return base * ratio(t, rise);
      if (t >= end) return lr_end;
      return (base - lr_end) * std::pow(1 - ratio(t - rise, end - rise), power) + lr_end;
    });
  }
};

struct InverseSqrt : Warmup {
  std::optional<int64_t> timescale;
  static void describe(Fields<InverseSqrt>& f) {
    describe_warmup(f);
    f.optional("timescale", &InverseSqrt::timescale)
        .at_least(1)
        .doc(
            "the rate has halved three times this long after the warm-up; by default the length of the warm-up, or "
            "10,000 without one");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    const int64_t rise = warmup(inputs);
    return closed_form(inputs, [rise, scale = timescale.value_or(rise > 0 ? rise : 10000)](int64_t t, double base) {
      return base * (t < rise ? ratio(t, rise) : 1 / std::sqrt(ratio(t - rise + scale, scale)));
    });
  }
};

struct WarmupStableDecay : Warmup {
  int64_t num_decay_steps = 0;
  std::optional<int64_t> num_stable_steps;
  WarmupShape warmup_type = WarmupShape::kLinear;
  WarmupShape decay_type = WarmupShape::kCosine;
  double min_lr_ratio = 0;
  double num_cycles = 0.5;
  static void describe(Fields<WarmupStableDecay>& f) {
    describe_warmup(f);
    f.required("num_decay_steps", &WarmupStableDecay::num_decay_steps)
        .at_least(0)
        .doc("number of steps in which the rate falls");
    f.optional("num_stable_steps", &WarmupStableDecay::num_stable_steps)
        .at_least(0)
        .doc(
            "number of steps in between at the full rate; by default the steps of the job that are neither warm-up nor "
            "decay");
    f.optional("warmup_type", &WarmupStableDecay::warmup_type).doc("shape of the rise");
    f.optional("decay_type", &WarmupStableDecay::decay_type).doc("shape of the fall");
    f.optional("min_lr_ratio", &WarmupStableDecay::min_lr_ratio)
        .at_least(0)
        .at_most(1)
        .doc("the lowest rate, as a share of the full one");
    f.optional("num_cycles", &WarmupStableDecay::num_cycles)
        .at_least(0)
        .doc("periods of a cosine decay; 0.5 goes down once");
  }
  double factor(int64_t t, int64_t rise, int64_t stable) const {
    const auto above_least = [&](double share) { return std::max(0.0, share * (1 - min_lr_ratio) + min_lr_ratio); };
    if (t < rise) {
      const double done = ratio(t, rise);
      if (warmup_type == WarmupShape::kLinear) return above_least(done);
      return above_least(warmup_type == WarmupShape::kCosine ? 1 - cosine(done) : 1 - std::sqrt(1 - done));
    }
    if (t < rise + stable) return 1;
    if (t >= rise + stable + num_decay_steps) return min_lr_ratio;
    const double done = ratio(t - rise - stable, num_decay_steps);
    if (decay_type == WarmupShape::kLinear) return above_least(1 - done);
    return above_least(decay_type == WarmupShape::kCosine ? cosine(num_cycles * 2 * done) : 1 - std::sqrt(done));
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    const int64_t rise = warmup(inputs);
    const int64_t stable = num_stable_steps.value_or(total(inputs) - rise - num_decay_steps);
    return closed_form(inputs,
                       [*this, rise, stable](int64_t t, double base) { return base * factor(t, rise, stable); });
  }
};

}  // namespace

void add_warmup_schedulers(SchedulerRegistry& schedulers) {
  schedulers.add<ConstantWithWarmup>("ConstantWithWarmup", "up from 0 along a line, then constant");
  schedulers.add<LinearWithWarmup>("LinearWithWarmup", "up from 0, then down to 0, along straight lines");
  schedulers.add<PolynomialWithWarmup>(
      "PolynomialWithWarmup", "up from 0 along a line, then down along a power of the remaining share of steps");
  schedulers.add<CosineWithWarmup>("CosineWithWarmup", "up from 0 along a line, then down along a cosine");
  schedulers.add<CosineWithHardRestarts>("CosineWithHardRestarts",
                                         "up from 0 along a line, then down along a cosine, again and again");
  schedulers.add<InverseSqrt>("InverseSqrt", "up from 0 along a line, then down as one over the root of the step");
  schedulers.add<WarmupStableDecay>("WarmupStableDecay", "up, constant, and down at the end");
}

}  // namespace trainrun
