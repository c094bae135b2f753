#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "registry/components/losses/preferences.h"
#include "registry/components/metrics/accumulators.h"

// What an alignment to preferences is watched by.

namespace trainrun {
namespace {

/// What the rewards of single answers should be is nobody's to say.
struct RewardsMetric : SumMetric {
  using SumMetric::SumMetric;
  std::optional<MonitorMode> better(const std::string& figure) const override {
    return figure == "margins" || figure == "accuracies" ? std::optional(MonitorMode::kMax) : std::nullopt;
  }
};

/// Source: Rafailov et al. 2023, "Direct Preference Optimization", section 4: the implicit reward of an answer. Figures
/// as trl's DPOTrainer logs them.
struct PreferenceRewards {
  double beta = 0.1;
  static void describe(Fields<PreferenceRewards>& f) {
    f.optional("beta", &PreferenceRewards::beta)
        .greater_than(0)
        .doc("the loss's; a reward is that many times the gain");
  }

  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(4, 4);
    check_preferences(in);
    const auto add = [](const Tensors& inputs) -> at::Tensor {
      const Tensors exact = {inputs[0].to(at::kDouble), inputs[1], inputs[2], inputs[3].to(at::kDouble)};
      const auto [chosen, rejected] = gains_of(exact, /*mean=*/false);
      const at::Tensor preferred = (chosen > rejected).to(at::kDouble);
      return at::stack({chosen.sum(), rejected.sum(), preferred.sum(), at::ones_like(preferred).sum()});
    };
    const auto finish = [factor = beta](const std::vector<double>& sums) -> Figures {
      const double count = std::max(sums[3], 1.0);
      return {{"chosen", factor * sums[0] / count},
              {"rejected", factor * sums[1] / count},
              {"margins", factor * (sums[0] - sums[1]) / count},
              {"accuracies", sums[2] / count}};
    };
    return std::make_unique<RewardsMetric>(std::nullopt, std::vector<int64_t>{4}, add, finish);
  }
};

}  // namespace

void add_preference_metrics(MetricRegistry& metrics) {
  metrics.add<PreferenceRewards>(
      "PreferenceRewards",
      "the mean reward of the chosen and of the rejected answers, beta times what each gains on the reference, their "
      "difference (margins), and the share of pairs whose chosen answer has the larger one (accuracies); inputs: "
      "[output, chosen_labels, rejected_labels, reference]");
}

}  // namespace trainrun
