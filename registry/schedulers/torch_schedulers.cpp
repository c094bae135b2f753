#include <cmath>
#include <numbers>

#include "registry/schedulers/closed_form.h"

namespace trainrun {
namespace {

struct ConstantLR {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
  static void describe(Fields<ConstantLR>& f) {
    f.optional("factor", &ConstantLR::factor).at_least(0).at_most(1).doc("times the learning rate at first");
    f.optional("total_iters", &ConstantLR::total_iters).at_least(0).doc("how long; the full rate afterwards");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs, [*this](int64_t t, double base) { return t < total_iters ? base * factor : base; });
  }
};

struct StepLR {
  int64_t step_size = 1;
  double gamma = 0.1;
  static void describe(Fields<StepLR>& f) {
    f.required("step_size", &StepLR::step_size).at_least(1).doc("the rate changes every so many");
    f.optional("gamma", &StepLR::gamma).at_least(0).doc("by this factor");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const {
    return closed_form(inputs, [*this](int64_t t, double base) {
      const int64_t num_drops = t / step_size;
      return base * std::pow(gamma, static_cast<double>(num_drops));
    });
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
    const auto half_period = static_cast<double>(T_max.value_or(std::max<int64_t>(1, inputs.total_steps)));
    return closed_form(inputs, [low = eta_min, half_period](int64_t t, double base) {
      return low + (base - low) * (1 + std::cos(std::numbers::pi * static_cast<double>(t) / half_period)) / 2;
    });
  }
};

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
        .doc("and ends at max_lr / div_factor / final_div_factor");
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

}  // namespace

void add_torch_schedulers(SchedulerRegistry& schedulers) {
  schedulers.add<ConstantLR>("ConstantLR", "a part of the rate at first, all of it later");
  schedulers.add<StepLR>("StepLR", "the rate times gamma every step_size");
  schedulers.add<CosineAnnealingLR>("CosineAnnealingLR", "along a cosine from the rate to eta_min");
  schedulers.add<OneCycleLR>("OneCycleLR", "up to max_lr and down to almost nothing, momentum the other way round");
}

}  // namespace trainrun
