#include <cmath>
#include <limits>

#include "registry/kinds/monitor.h"
#include "registry/kinds/scheduler.h"

namespace trainrun {

/// What an improvement is measured by.
enum class ThresholdMode { kRelative, kAbsolute };
template <>
struct Words<ThresholdMode> {
  static constexpr std::array kWords = {"rel", "abs"};
};

namespace {

struct ReduceLROnPlateau : Monitored {
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
  static void describe(Fields<ReduceLROnPlateau>& f) {
    describe_monitor(f);
    f.optional("factor", &ReduceLROnPlateau::factor).at_least(0).less_than(1).doc("factor of the rate on a plateau");
    f.optional("patience", &ReduceLROnPlateau::patience)
        .at_least(0)
        .doc("evaluations without improvement before the rate changes");
    f.optional("threshold", &ReduceLROnPlateau::threshold)
        .at_least(0)
        .doc("a change smaller than this is not an improvement");
    f.optional("threshold_mode", &ReduceLROnPlateau::threshold_mode)
        .doc("whether threshold is a share or a difference");
    f.optional("cooldown", &ReduceLROnPlateau::cooldown)
        .at_least(0)
        .doc("evaluations after a change of the rate that are ignored");
    f.optional("min_lr", &ReduceLROnPlateau::min_lr).at_least(0).doc("the lowest rate");
    f.optional("eps", &ReduceLROnPlateau::eps).at_least(0).doc("changes of the rate smaller than this are not made");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const;
};

/// Semantics of torch.optim.lr_scheduler.ReduceLROnPlateau.
class Plateau : public Scheduler {
 public:
  Plateau(const ReduceLROnPlateau& options, const SchedulerInputs& inputs) : options_(options) {
    best_ = -options.sign() * std::numeric_limits<double>::infinity();
    for (const GroupRates& base : inputs.base) lrs_.push_back(base.lr);
  }

  void set(int64_t, std::vector<GroupRates>& rates) override {
    for (size_t i = 0; i < rates.size(); ++i) rates[i].lr = lrs_[i];
  }
  std::string monitor() const override { return options_.monitor; }

  void observe(double value) override {
    if (is_better(value)) {
      best_ = value;
      num_bad_ = 0;
    } else {
      ++num_bad_;
    }
    if (cooldown_left_ > 0) {
      --cooldown_left_;
      num_bad_ = 0;
    }
    if (num_bad_ <= options_.patience) return;
    for (double& lr : lrs_) {
      const double reduced = std::max(lr * options_.factor, options_.min_lr);
      if (lr - reduced > options_.eps) lr = reduced;
    }
    cooldown_left_ = options_.cooldown;
    num_bad_ = 0;
  }

  nlohmann::json state() const override {
    return {{"lrs", lrs_}, {"best", best_}, {"num_bad", num_bad_}, {"cooldown_left", cooldown_left_}};
  }
  void load_state(const nlohmann::json& state) override {
    lrs_ = state.at("lrs").get<std::vector<double>>();
    best_ = state.at("best");
    num_bad_ = state.at("num_bad");
    cooldown_left_ = state.at("cooldown_left");
  }

 private:
  bool is_better(double value) const {
    const double sign = options_.sign();
    const bool relative = options_.threshold_mode == ThresholdMode::kRelative;
    const double bar = relative ? best_ * (1 + sign * options_.threshold) : best_ + sign * options_.threshold;
    return options_.is_better(value, bar);
  }
  ReduceLROnPlateau options_;
  std::vector<double> lrs_;
  double best_;
  int64_t num_bad_ = 0;
  int64_t cooldown_left_ = 0;
};

std::unique_ptr<Scheduler> ReduceLROnPlateau::build(const SchedulerInputs& inputs) const {
  return std::make_unique<Plateau>(*this, inputs);
}

}  // namespace

void add_plateau(SchedulerRegistry& schedulers) {
  schedulers.add<ReduceLROnPlateau>("ReduceLROnPlateau", "lowers the rate when a metric stops improving");
}

}  // namespace trainrun
