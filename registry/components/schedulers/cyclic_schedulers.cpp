#include <cmath>
#include <numbers>

#include "registry/kinds/scheduler.h"

namespace trainrun {
namespace {

/// One value or one for each parameter group.
using PerGroup = std::variant<double, std::vector<double>>;

double of_group(const PerGroup& value, size_t group) {
  if (const auto* one = std::get_if<double>(&value)) return *one;
  const auto& list = std::get<std::vector<double>>(value);
  return list[std::min(group, list.size() - 1)];
}

struct OneCycleLR {
  PerGroup max_lr = 0.0;
  std::optional<int64_t> total_steps;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.85;
  PerGroup max_momentum = 0.95;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
  static void describe(Fields<OneCycleLR>& f) {
    f.required("max_lr", &OneCycleLR::max_lr)
        .greater_than(0)
        .not_empty("needs at least one value")
        .doc("the highest rate; one for each group as a list");
    f.optional("total_steps", &OneCycleLR::total_steps)
        .at_least(1)
        .doc("length of the cycle; the whole job by default");
    f.optional("pct_start", &OneCycleLR::pct_start)
        .at_least(0)
        .at_most(1)
        .doc("share of the cycle in which the rate rises");
    f.optional("anneal_strategy", &OneCycleLR::anneal_strategy).one_of({"cos", "linear"}).doc("shape of the curve");
    f.optional("cycle_momentum", &OneCycleLR::cycle_momentum)
        .doc("momentum (Adam's first beta) falls as the rate rises");
    f.optional("base_momentum", &OneCycleLR::base_momentum)
        .at_least(0)
        .less_than(1)
        .not_empty("needs at least one value")
        .doc("the lowest momentum");
    f.optional("max_momentum", &OneCycleLR::max_momentum)
        .at_least(0)
        .less_than(1)
        .not_empty("needs at least one value")
        .doc("the highest momentum");
    f.optional("div_factor", &OneCycleLR::div_factor).greater_than(0).doc("the cycle starts at max_lr / div_factor");
    f.optional("final_div_factor", &OneCycleLR::final_div_factor)
        .greater_than(0)
        .doc("the cycle ends at max_lr / div_factor / final_div_factor");
    f.optional("three_phase", &OneCycleLR::three_phase).doc("fall to the starting rate first, then to the last one");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const;
};

/// Source: Smith & Topin 2018, "Super-convergence"; semantics of torch.optim.lr_scheduler.OneCycleLR.
class OneCycle : public Scheduler {
 public:
  OneCycle(const OneCycleLR& options, int64_t total_steps, size_t num_groups) : options_(options) {
    const auto total = static_cast<double>(total_steps);
    const double rise = options.pct_start * total - 1;
    for (size_t i = 0; i < num_groups; ++i) {
      const double high = of_group(options.max_lr, i);
      const double low = high / options.div_factor;
      const double least = low / options.final_div_factor;
      const double calm = of_group(options.base_momentum, i);
      const double brisk = of_group(options.max_momentum, i);
      if (options.three_phase) {
        phases_.push_back({{rise, low, high, brisk, calm},
                           {2 * options.pct_start * total - 2, high, low, calm, brisk},
                           {total - 1, low, least, brisk, brisk}});
      } else {
        phases_.push_back({{rise, low, high, brisk, calm}, {total - 1, high, least, calm, brisk}});
      }
    }
  }

  void set(int64_t t, std::vector<GroupRates>& rates) override {
    for (size_t i = 0; i < rates.size(); ++i) {
      const auto& phases = phases_[i];
      double start = 0;
      for (size_t k = 0; k < phases.size(); ++k) {
        const Phase& phase = phases[k];
        if (static_cast<double>(t) <= phase.end || k + 1 == phases.size()) {
          const double done = std::min(1.0, (static_cast<double>(t) - start) / (phase.end - start));
          rates[i].lr = anneal(phase.lr_from, phase.lr_to, done);
          if (options_.cycle_momentum && rates[i].momentum) {
            rates[i].momentum = anneal(phase.momentum_from, phase.momentum_to, done);
          }
          break;
        }
        start = phase.end;
      }
    }
  }

 private:
  struct Phase {
    double end;
    double lr_from;
    double lr_to;
    double momentum_from;
    double momentum_to;
  };
  double anneal(double from, double to, double done) const {
    if (options_.anneal_strategy == "linear") return (to - from) * done + from;
    return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * done) + 1);
  }
  OneCycleLR options_;
  std::vector<std::vector<Phase>> phases_;  // by group
};

std::unique_ptr<Scheduler> OneCycleLR::build(const SchedulerInputs& inputs) const {
  return std::make_unique<OneCycle>(*this, total_steps.value_or(std::max<int64_t>(1, inputs.total_steps)),
                                    inputs.base.size());
}

struct CyclicLR {
  PerGroup base_lr = 0.0;
  PerGroup max_lr = 0.0;
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down;
  std::string mode = "triangular";
  double gamma = 1;
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.8;
  PerGroup max_momentum = 0.9;
  static void describe(Fields<CyclicLR>& f) {
    f.required("base_lr", &CyclicLR::base_lr)
        .at_least(0)
        .not_empty("needs at least one value")
        .doc("the lowest rate; one for each group as a list");
    f.required("max_lr", &CyclicLR::max_lr)
        .at_least(0)
        .not_empty("needs at least one value")
        .doc("the highest rate; one for each group as a list");
    f.optional("step_size_up", &CyclicLR::step_size_up).at_least(1).doc("number of steps in which the rate rises");
    f.optional("step_size_down", &CyclicLR::step_size_down)
        .at_least(1)
        .doc("number of steps in which it falls; by default the same as step_size_up");
    f.optional("mode", &CyclicLR::mode)
        .one_of({"triangular", "triangular2", "exp_range"})
        .doc("cycles keep their height, halve it each time, or shrink by gamma at each step");
    f.optional("gamma", &CyclicLR::gamma).at_least(0).doc("factor for exp_range");
    f.optional("cycle_momentum", &CyclicLR::cycle_momentum).doc("momentum (Adam's first beta) falls as the rate rises");
    f.optional("base_momentum", &CyclicLR::base_momentum)
        .at_least(0)
        .less_than(1)
        .not_empty("needs at least one value")
        .doc("the lowest momentum");
    f.optional("max_momentum", &CyclicLR::max_momentum)
        .at_least(0)
        .less_than(1)
        .not_empty("needs at least one value")
        .doc("the highest momentum");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs&) const;
};

/// Source: Smith 2017, "Cyclical learning rates"; semantics of torch.optim.lr_scheduler.CyclicLR.
class Cyclic : public Scheduler {
 public:
  explicit Cyclic(const CyclicLR& options) : options_(options) {
    const auto up = static_cast<double>(options.step_size_up);
    period_ = up + static_cast<double>(options.step_size_down.value_or(options.step_size_up));
    rising_share_ = up / period_;
  }

  void set(int64_t t, std::vector<GroupRates>& rates) override {
    const double cycles = static_cast<double>(t) / period_;
    const double cycle = std::floor(1 + cycles);
    const double x = 1 + cycles - cycle;
    const double height = x <= rising_share_ ? x / rising_share_ : (x - 1) / (rising_share_ - 1);
    const double scaled = height * scale(cycle, t);
    for (size_t i = 0; i < rates.size(); ++i) {
      const double low = of_group(options_.base_lr, i);
      rates[i].lr = low + (of_group(options_.max_lr, i) - low) * scaled;
      if (!options_.cycle_momentum || !rates[i].momentum) continue;
      const double brisk = of_group(options_.max_momentum, i);
      rates[i].momentum = brisk - (brisk - of_group(options_.base_momentum, i)) * scaled;
    }
  }

 private:
  /// How high the cycle that began as number `cycle` (from 1) is at step `t`, as a share of the first.
  double scale(double cycle, int64_t t) const {
    if (options_.mode == "triangular2") return 1 / std::pow(2.0, cycle - 1);
    if (options_.mode == "exp_range") return std::pow(options_.gamma, static_cast<double>(t));
    return 1;
  }
  CyclicLR options_;
  double period_;
  double rising_share_;
};

std::unique_ptr<Scheduler> CyclicLR::build(const SchedulerInputs&) const { return std::make_unique<Cyclic>(*this); }

}  // namespace

void add_cyclic_schedulers(SchedulerRegistry& schedulers) {
  schedulers.add<OneCycleLR>("OneCycleLR", "up to max_lr and down to almost nothing; momentum moves the other way");
  schedulers.add<CyclicLR>("CyclicLR", "up and down between base_lr and max_lr; momentum moves the other way");
}

}  // namespace trainrun
