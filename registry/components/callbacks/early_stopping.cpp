#include <algorithm>
#include <cmath>
#include <cstdio>

#include "registry/kinds/callback.h"
#include "registry/kinds/monitor.h"

namespace trainrun {
namespace {

struct EarlyStopping : Monitored {
  int64_t patience = 3;
  double min_delta = 0;
  static void describe(Fields<EarlyStopping>& f) {
    describe_monitor(f);
    f.optional("patience", &EarlyStopping::patience)
        .at_least(0)
        .doc("number of evaluations without improvement after which training ends")
        .unit("evaluations");
    f.optional("min_delta", &EarlyStopping::min_delta)
        .at_least(0)
        .doc("minimum change of the figure that counts as an improvement");
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

std::string text_of(double figure) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", figure);
  return text;
}

/// Semantics of Lightning's and Keras's EarlyStopping; a figure that is NaN is no improvement. Source: Prechelt 1998,
/// "Early stopping: but when?".
class Stopper : public Callback {
 public:
  explicit Stopper(const EarlyStopping& options) : options_(options) {}
  bool reads_gradients(bool) const override { return false; }
  std::string monitor() const override { return options_.monitor; }

  Verdict after_evaluation(Run&, const Figures& figures) override {
    const std::optional<double> figure = figure_of(figures, options_.monitor);
    if (!figure) throw Error("evaluation gives no '" + options_.monitor + "'");
    if (is_better(*figure)) {
      best_ = *figure;
      waited_ = 0;
      return {};
    }
    ++waited_;
    if (waited_ < std::max<int64_t>(options_.patience, 1)) return {};
    return {false, options_.monitor + " has not improved for " + std::to_string(waited_) +
                       (waited_ == 1 ? " evaluation" : " evaluations") + ": it is " + text_of(*figure) +
                       (best_ ? ", the best was " + text_of(*best_) : "")};
  }

  void save(Run&, Snapshot& snapshot) const override {
    snapshot.values = {{"best", best_ ? nlohmann::json(*best_) : nlohmann::json()}, {"waited", waited_}};
  }

  void load(Run&, const Snapshot& snapshot) override {
    if (snapshot.values.is_null()) return;
    const nlohmann::json& best = snapshot.values.at("best");
    best_ = best.is_null() ? std::nullopt : std::optional(best.get<double>());
    waited_ = snapshot.values.at("waited").get<int64_t>();
  }

 private:
  bool is_better(double figure) const {
    if (std::isnan(figure)) return false;
    if (!best_) return true;
    return options_.is_better(figure, *best_ + options_.sign() * options_.min_delta);
  }

  EarlyStopping options_;
  std::optional<double> best_;
  int64_t waited_ = 0;  // evaluations since the best one
};

std::unique_ptr<Callback> EarlyStopping::build(const CallbackInputs&) const { return std::make_unique<Stopper>(*this); }

}  // namespace

void add_early_stopping(CallbackRegistry& callbacks) {
  callbacks.add<EarlyStopping>("EarlyStopping", "ends training when a figure of the evaluations no longer improves");
}

}  // namespace trainrun
