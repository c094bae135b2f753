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
        .doc("beta of the loss; a reward is this many times the gain");
  }

  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(3, 4);
    const bool has_reference = in.examples.size() > 3;
    check_preferences(in, has_reference);
    const auto add = [has_reference](const Tensors& inputs) -> at::Tensor {
      Tensors exact = {inputs[0].to(at::kDouble), inputs[1], inputs[2]};
      if (has_reference) exact.push_back(inputs[3].to(at::kDouble));
      const auto [chosen, rejected] = gains_of(exact, /*mean=*/!has_reference);
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

/// Figures as trl's KTOTrainer logs them.
struct DesirableRewards {
  double beta = 0.1;
  static void describe(Fields<DesirableRewards>& f) {
    f.optional("beta", &DesirableRewards::beta)
        .greater_than(0)
        .doc("beta of the loss; a reward is this many times the gain");
  }

  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(5, 5);
    check_desirable(in);
    const auto add = [](const Tensors& inputs) -> at::Tensor {
      Tensors exact = inputs;
      for (const size_t logits : {0, 4}) exact[logits] = exact[logits].to(at::kDouble);
      const auto [own, mismatched] = desirable_gains(exact);
      const at::Tensor desirable = (inputs[3] > 0).to(at::kDouble);
      return at::stack({(own * desirable).sum(), desirable.sum(), (own * (1 - desirable)).sum(), (1 - desirable).sum(),
                        mismatched.sum()});
    };
    const auto finish = [factor = beta](const std::vector<double>& sums) -> Figures {
      const double chosen = factor * sums[0] / std::max(sums[1], 1.0);
      const double rejected = factor * sums[2] / std::max(sums[3], 1.0);
      const double kl = std::max(sums[4] / std::max(sums[1] + sums[3], 1.0), 0.0);
      return {{"chosen", chosen}, {"rejected", rejected}, {"margins", chosen - rejected}, {"kl", kl}};
    };
    return std::make_unique<RewardsMetric>(std::nullopt, std::vector<int64_t>{5}, add, finish);
  }
};

/// Which way a reward model's figures are better.
struct ScoresMetric : SumMetric {
  using SumMetric::SumMetric;
  std::optional<MonitorMode> better(const std::string& figure) const override {
    return figure == "mean_reward" ? std::nullopt : std::optional(MonitorMode::kMax);
  }
};

/// Figures as trl's RewardTrainer logs them.
struct RewardScores {
  static void describe(Fields<RewardScores>&) {}

  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(1, 1);
    check_scores(in);
    const auto add = [](const Tensors& inputs) -> at::Tensor {
      const auto [chosen, rejected] = halves_of(inputs[0].to(at::kDouble));
      const at::Tensor better = (chosen > rejected).to(at::kDouble);
      return at::stack({better.sum(), chosen.sum(), rejected.sum(), at::ones_like(better).sum()});
    };
    const auto finish = [](const std::vector<double>& sums) -> Figures {
      const double count = std::max(sums[3], 1.0);
      return {{"accuracy", sums[0] / count},
              {"margin", (sums[1] - sums[2]) / count},
              {"mean_reward", (sums[1] + sums[2]) / (2 * count)}};
    };
    return std::make_unique<ScoresMetric>(std::nullopt, std::vector<int64_t>{4}, add, finish);
  }
};

}  // namespace

void add_preference_metrics(MetricRegistry& metrics) {
  metrics.add<PreferenceRewards>(
      "PreferenceRewards",
      "the mean reward of the chosen and of the rejected answers, where a reward is beta times the answer's gain on "
      "the reference, their difference (margins), and the share of pairs whose chosen answer has the larger one "
      "(accuracies); inputs: [output, chosen_labels, rejected_labels, reference]. Without the reference, as for "
      "ORPOLoss and SimPOLoss, a reward is beta times the mean log-probability of the answer's tokens");
  metrics.add<DesirableRewards>(
      "DesirableRewards",
      "the mean reward of desirable answers (chosen) and of others (rejected), their difference (margins), and the "
      "mean "
      "gain of mismatched answers (kl); inputs: [output, labels, kl_labels, label, reference]");
  metrics.add<RewardScores>(
      "RewardScores",
      "for a reward model: the share of pairs whose chosen text has the larger score (accuracy), by how much (margin), "
      "and the mean score; inputs: [output], the chosen texts' scores first");
}

}  // namespace trainrun
