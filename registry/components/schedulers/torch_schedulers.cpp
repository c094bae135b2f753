#include <algorithm>
#include <cmath>
#include <numbers>

#include "registry/components/schedulers/chainable.h"
#include "registry/components/schedulers/closed_form.h"

// Each is PyTorch's own recurrence, so that chains of them, and what rounding leaves, are PyTorch's too.

namespace trainrun {
namespace {

struct ConstantLR {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
  static void describe(Fields<ConstantLR>& f) {
    f.optional("factor", &ConstantLR::factor).at_least(0).at_most(1).doc("factor of the learning rate at the start");
    f.optional("total_iters", &ConstantLR::total_iters)
        .at_least(0)
        .doc("how long; the full rate follows. 0, as in PyTorch: forever, or not at all after another scheduler");
  }
  void check(Checker& checker) const {
    if (factor == 0 && total_iters > 0) checker.fail("factor", "a rate times 0 does not come back; make it above 0");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const;

 private:
  class Constant;
};

class ConstantLR::Constant : public ChainableScheduler {
 public:
  Constant(const SchedulerInputs& inputs, const ConstantLR& options) : ChainableScheduler(inputs), options_(options) {}
  void advance(int64_t t, std::vector<GroupRates>& rates) override {
    for (GroupRates& group : rates) {
      if (t == 0) group.lr *= options_.factor;
      if (t != 0 && t == options_.total_iters) group.lr *= 1.0 / options_.factor;
    }
  }
  /// At a milestone PyTorch takes its closed form, by which a stretch of 0 is over at once.
  void take_over(std::vector<GroupRates>& rates) override {
    for (size_t i = 0; i < rates.size(); ++i) rates[i].lr = base_[i].lr;
    if (options_.total_iters > 0) advance(0, rates);
  }

 private:
  ConstantLR options_;
};

std::unique_ptr<Scheduler> ConstantLR::build(const SchedulerInputs& inputs) const {
  return std::make_unique<Constant>(inputs, *this);
}

struct LinearLR {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
  static void describe(Fields<LinearLR>& f) {
    f.optional("start_factor", &LinearLR::start_factor)
        .greater_than(0)
        .at_most(1)
        .doc("factor of the learning rate at the start");
    f.optional("end_factor", &LinearLR::end_factor)
        .at_least(0)
        .at_most(1)
        .doc("factor of the learning rate at the end");
    f.optional("total_iters", &LinearLR::total_iters)
        .at_least(0)
        .doc("number of steps (or epochs) from one to the other");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return recurrence(inputs, [*this](int64_t t, double lr, double) {
      if (t == 0) return lr * start_factor;
      if (t > total_iters) return lr;
      const double change = end_factor - start_factor;
      const double before =
          static_cast<double>(total_iters) * start_factor + static_cast<double>(t - 1) * change;  // times total_iters
      return lr * (1.0 + change / before);
    });
  }
};

struct PolynomialLR {
  int64_t total_iters = 5;
  double power = 1;
  static void describe(Fields<PolynomialLR>& f) {
    f.optional("total_iters", &PolynomialLR::total_iters).at_least(0).doc("number of steps (or epochs) down to 0");
    f.optional("power", &PolynomialLR::power).at_least(0).doc("of what remains");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return recurrence(inputs, [*this, total = static_cast<double>(total_iters)](int64_t t, double lr, double) {
      if (t == 0 || t > total_iters) return lr;
      const auto at = static_cast<double>(t);
      return lr * std::pow((1.0 - at / total) / (1.0 - (at - 1) / total), power);
    });
  }
};

struct StepLR {
  int64_t step_size = 1;
  double gamma = 0.1;
  static void describe(Fields<StepLR>& f) {
    f.required("step_size", &StepLR::step_size)
        .at_least(1)
        .doc("number of steps, or epochs, between two changes of the rate");
    f.optional("gamma", &StepLR::gamma).at_least(0).doc("the rate changes by this factor");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return recurrence(inputs,
                      [*this](int64_t t, double lr, double) { return t == 0 || t % step_size != 0 ? lr : lr * gamma; });
  }
};

struct MultiStepLR {
  std::vector<int64_t> milestones;
  double gamma = 0.1;
  static void describe(Fields<MultiStepLR>& f) {
    f.required("milestones", &MultiStepLR::milestones)
        .at_least(0)
        .doc("the steps (or epochs) at which the rate changes");
    f.optional("gamma", &MultiStepLR::gamma).at_least(0).doc("the rate changes by this factor");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return recurrence(inputs, [*this](int64_t t, double lr, double) {
      return lr * std::pow(gamma, static_cast<double>(std::count(milestones.begin(), milestones.end(), t)));
    });
  }
};

struct ExponentialLR {
  double gamma = 1;
  static void describe(Fields<ExponentialLR>& f) {
    f.required("gamma", &ExponentialLR::gamma).at_least(0).doc("the rate changes by this factor each time");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return recurrence(inputs, [*this](int64_t t, double lr, double) { return t == 0 ? lr : lr * gamma; });
  }
};

struct CosineAnnealingLR {
  std::optional<int64_t> T_max;  // NOLINT(readability-identifier-naming): PyTorch's name
  double eta_min = 0;
  static void describe(Fields<CosineAnnealingLR>& f) {
    f.optional("T_max", &CosineAnnealingLR::T_max).at_least(1).doc("half a period; the whole job by default");
    f.optional("eta_min", &CosineAnnealingLR::eta_min).at_least(0).doc("the lowest rate");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    const int64_t half_period = T_max.value_or(std::max<int64_t>(1, inputs.total_steps));
    return recurrence(inputs, [low = eta_min, half_period](int64_t t, double lr, double base) {
      if (t == 0) return lr;
      const auto half = static_cast<double>(half_period);
      const bool leaves_the_bottom = (t - 1 - half_period) % (2 * half_period) == 0;  // where the quotient is 0 / 0
      if (leaves_the_bottom) return lr + (base - low) * (1 - std::cos(std::numbers::pi / half)) / 2;
      const auto above = [&](int64_t at) { return 1 + std::cos(std::numbers::pi * static_cast<double>(at) / half); };
      return above(t) / above(t - 1) * (lr - low) + low;
    });
  }
};

struct CosineAnnealingWarmRestarts {
  int64_t T_0 = 1;     // NOLINT(readability-identifier-naming): PyTorch's names
  int64_t T_mult = 1;  // NOLINT(readability-identifier-naming)
  double eta_min = 0;
  static void describe(Fields<CosineAnnealingWarmRestarts>& f) {
    f.required("T_0", &CosineAnnealingWarmRestarts::T_0)
        .at_least(1)
        .doc("number of steps (or epochs) before the first restart");
    f.optional("T_mult", &CosineAnnealingWarmRestarts::T_mult)
        .at_least(1)
        .doc("each cycle is this many times longer than the last one");
    f.optional("eta_min", &CosineAnnealingWarmRestarts::eta_min).at_least(0).doc("the lowest rate");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs, [*this](int64_t t, double base) {
      int64_t length = T_0;
      if (T_mult == 1) t %= length;
      for (; t >= length; length *= T_mult) t -= length;
      const double done = static_cast<double>(t) / static_cast<double>(length);
      return eta_min + (base - eta_min) * (1 + std::cos(std::numbers::pi * done)) / 2;
    });
  }
};

/// One value or points [when, value], the last that was reached counting.
using LrLambda = std::variant<double, std::vector<std::array<double, 2>>>;

struct MultiplicativeLR {
  LrLambda lr_lambda = 1.0;
  static void describe(Fields<MultiplicativeLR>& f) {
    f.required("lr_lambda", &MultiplicativeLR::lr_lambda)
        .at_least(0)
        .doc("the rate changes by this factor each time; points [when, factor] for one that changes");
  }
  void check(Checker& checker) const {
    const auto* points = std::get_if<std::vector<std::array<double, 2>>>(&lr_lambda);
    if (!points) return;
    const auto later = [](const auto& a, const auto& b) { return a[0] >= b[0]; };
    const bool rising = std::adjacent_find(points->begin(), points->end(), later) == points->end();
    if (points->empty() || !rising) checker.fail("lr_lambda", "needs points in order of time");
  }
  double factor(int64_t t) const {
    if (const auto* constant = std::get_if<double>(&lr_lambda)) return *constant;
    double factor = 1;
    for (const auto& [when, value] : std::get<std::vector<std::array<double, 2>>>(lr_lambda)) {
      if (when <= static_cast<double>(t)) factor = value;
    }
    return factor;
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const;
};

/// Has no rate of its own to begin with: after another scheduler it goes on from that one's, as in PyTorch.
class Multiplicative : public ChainableScheduler {
 public:
  Multiplicative(const SchedulerInputs& inputs, MultiplicativeLR options)
      : ChainableScheduler(inputs), options_(std::move(options)) {}
  void advance(int64_t t, std::vector<GroupRates>& rates) override {
    if (t > 0) multiply(t, rates);
  }
  void take_over(std::vector<GroupRates>& rates) override { multiply(0, rates); }

 private:
  void multiply(int64_t t, std::vector<GroupRates>& rates) const {
    for (GroupRates& group : rates) group.lr *= options_.factor(t);
  }
  MultiplicativeLR options_;
};

std::unique_ptr<Scheduler> MultiplicativeLR::build(const SchedulerInputs& inputs) const {
  return std::make_unique<Multiplicative>(inputs, *this);
}

}  // namespace

void add_torch_schedulers(SchedulerRegistry& schedulers) {
  schedulers.add<ConstantLR>("ConstantLR", "a fraction of the rate at first, the full rate later");
  schedulers.add<LinearLR>("LinearLR", "along a straight line from one fraction of the rate to another");
  schedulers.add<PolynomialLR>("PolynomialLR", "down to 0 along a power of the remaining share of steps");
  schedulers.add<StepLR>("StepLR", "the rate times gamma every step_size");
  schedulers.add<MultiStepLR>("MultiStepLR", "the rate times gamma at each milestone");
  schedulers.add<ExponentialLR>("ExponentialLR", "the rate times gamma each time");
  schedulers.add<MultiplicativeLR>("MultiplicativeLR", "the rate times a factor each time");
  schedulers.add<CosineAnnealingLR>("CosineAnnealingLR", "along a cosine from the rate to eta_min");
  schedulers.add<CosineAnnealingWarmRestarts>("CosineAnnealingWarmRestarts",
                                              "along a cosine from the rate to eta_min, again and again");
}

}  // namespace trainrun
