#include <algorithm>
#include <cmath>
#include <utility>

#include "registry/kinds/callback.h"
#include "registry/kinds/monitor.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

struct EarlyStopping : Monitored {
  int64_t patience = 3;
  double min_delta = 0;
  bool restore_best = false;
  static void describe(Fields<EarlyStopping>& f) {
    describe_monitor(f);
    f.optional("patience", &EarlyStopping::patience)
        .at_least(0)
        .doc("number of evaluations without improvement after which training ends")
        .unit("evaluations");
    f.optional("min_delta", &EarlyStopping::min_delta)
        .at_least(0)
        .doc("minimum change of the figure that counts as an improvement");
    f.optional("restore_best", &EarlyStopping::restore_best)
        .doc(
            "the run ends with the weights of the best evaluation, whether it was stopped early or not; the averages "
            "of EMA and SWA and the layers' buffers are restored as well");
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

/// Semantics of Lightning's and Keras's EarlyStopping; a figure that is NaN is no improvement. `restore_best` is
/// restore_best_weights of Keras 3: until there is an improvement, the first evaluation's weights are the best. Source: Prechelt 1998,
/// "Early stopping: but when?".
class Stopper : public Callback {
 public:
  explicit Stopper(const EarlyStopping& options) : options_(options) {}
  bool reads_gradients(bool) const override { return false; }
  std::string monitor() const override { return options_.monitor; }
  bool restores() const override { return options_.restore_best; }

  Verdict after_evaluation(Run&, const Figures& figures) override {
    const std::optional<double> figure = figure_of(figures, options_.monitor);
    if (!figure) throw Error("evaluations have no '" + options_.monitor + "'");
    if (is_better(*figure)) {
      best_ = *figure;
      waited_ = 0;
      has_kept_ = true;
      return {false, "", options_.restore_best};
    }
    ++waited_;
    const bool keep = options_.restore_best && !std::exchange(has_kept_, true);
    if (waited_ < std::max<int64_t>(options_.patience, 1)) return {false, "", keep};
    return {false,
            options_.monitor + " has not improved for " + std::to_string(waited_) +
                (waited_ == 1 ? " evaluation" : " evaluations") + ": it is " + in_figures(*figure, 6) +
                (best_ ? ", the best was " + in_figures(*best_, 6) : ""),
            keep};
  }

  void save(Run&, Snapshot& snapshot) const override {
    snapshot.values = {{"best", best_ ? nlohmann::json(*best_) : nlohmann::json()}, {"waited", waited_}};
  }

  void load(Run&, const Snapshot& snapshot) override {
    if (snapshot.values.is_null()) return;
    const nlohmann::json& best = snapshot.values.at("best");
    best_ = best.is_null() ? std::nullopt : std::optional(best.get<double>());
    waited_ = snapshot.values.at("waited").get<int64_t>();
    has_kept_ = best_ || waited_ > 0;
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
  bool has_kept_ = false;
};

std::unique_ptr<Callback> EarlyStopping::build(const CallbackInputs&) const { return std::make_unique<Stopper>(*this); }

}  // namespace

void add_early_stopping(CallbackRegistry& callbacks) {
  callbacks.add<EarlyStopping>("EarlyStopping", "ends training when a figure of the evaluations no longer improves");
}

}  // namespace trainrun
