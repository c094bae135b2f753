#include <algorithm>
#include <cmath>
#include <numbers>

#include "registry/components/schedulers/chainable.h"

namespace trainrun {

/// The way from one rate to another.
enum class AnnealStrategy { kCos, kLinear };
template <>
struct Words<AnnealStrategy> {
  static constexpr std::array kWords = {"cos", "linear"};
};

namespace {

/// torch.optim.swa_utils.SWALR, whose recurrence it is.
struct SWALR {
  double swa_lr = 0;
  int64_t anneal_epochs = 10;
  AnnealStrategy anneal_strategy = AnnealStrategy::kCos;
  static void describe(Fields<SWALR>& f) {
    f.required("swa_lr", &SWALR::swa_lr).at_least(0).doc("the rate at the end, which stays");
    f.optional("anneal_epochs", &SWALR::anneal_epochs)
        .at_least(0)
        .doc("number of steps (or epochs) on the way from the rate before");
    f.optional("anneal_strategy", &SWALR::anneal_strategy).doc("along a half wave of the cosine, or a straight line");
  }
  std::unique_ptr<Scheduler> build(const SchedulerInputs& inputs) const;
};

class Annealing : public ChainableScheduler {
 public:
  Annealing(const SchedulerInputs& inputs, const SWALR& options) : ChainableScheduler(inputs), options_(options) {}

  void advance(int64_t t, std::vector<GroupRates>& rates) override {
    const int64_t step = options_.anneal_epochs == 0 ? std::max<int64_t>(t, 1) : t;
    const double before = share(step - 1);
    const double now = share(step);
    for (GroupRates& group : rates) {
      const double first = before == 1 ? options_.swa_lr : (group.lr - before * options_.swa_lr) / (1 - before);
      group.lr = options_.swa_lr * now + first * (1 - now);
    }
  }
  /// It goes on from the rates that it finds.
  void take_over(std::vector<GroupRates>& rates) override { advance(0, rates); }

 private:
  /// Of the way that is done at `step`.
  double share(int64_t step) const {
    const double length = static_cast<double>(std::max<int64_t>(options_.anneal_epochs, 1));
    const double t = std::clamp(static_cast<double>(step) / length, 0.0, 1.0);
    return options_.anneal_strategy == AnnealStrategy::kCos ? (1 - std::cos(std::numbers::pi * t)) / 2 : t;
  }

  SWALR options_;
};

std::unique_ptr<Scheduler> SWALR::build(const SchedulerInputs& inputs) const {
  return std::make_unique<Annealing>(inputs, *this);
}

}  // namespace

void add_swa_lr(SchedulerRegistry& schedulers) {
  schedulers.add<SWALR>("SWALR",
                        "from the rate where another scheduler stopped to a constant one, for averaged weights");
}

}  // namespace trainrun
