#include <ATen/TensorOperators.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/poisson_nll_loss.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "registry/components/losses/loss_of.h"

namespace trainrun {
namespace {

/// One ATen function without parameters of its own.
template <at::Tensor (*kFunction)(const at::Tensor&, const at::Tensor&, int64_t)>
struct Plain : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kNumbers;
  static void describe(auto&) {}
  at::Tensor operator()(const Tensors& in, int64_t reduction) const { return kFunction(in[0], in[1], reduction); }
};

struct SmoothL1Loss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kNumbers;
  double beta = 1;
  static void describe(auto& f) {
    f.optional("beta", &SmoothL1Loss::beta).at_least(0).doc("the difference beyond which the loss is linear");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::smooth_l1_loss(in[0], in[1], reduction, beta);
  }
};

struct HuberLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kNumbers;
  double delta = 1;
  static void describe(auto& f) {
    f.optional("delta", &HuberLoss::delta).greater_than(0).doc("the difference beyond which the loss is linear");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::huber_loss(in[0], in[1], reduction, delta);
  }
};

struct KLDivLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  bool log_target = false;
  static std::vector<std::string> reductions() { return {"mean", "sum", "batchmean"}; }
  static void describe(auto& f) {
    f.optional("log_target", &KLDivLoss::log_target).doc("the target is log-probabilities too");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    if (reduction != kBatchMean) return at::kl_div(in[0], in[1], reduction, log_target);
    return at::kl_div(in[0], in[1], at::Reduction::Sum, log_target) / in[0].size(0);
  }
};

struct PoissonNLLLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kCounts;
  bool log_input = true;
  bool full = false;
  double eps = 1e-8;
  static void describe(auto& f) {
    f.optional("log_input", &PoissonNLLLoss::log_input).doc("the output is the logarithm of the rate");
    f.optional("full", &PoissonNLLLoss::full).doc("add Stirling's approximation of log(target!)");
    f.optional("eps", &PoissonNLLLoss::eps).greater_than(0).doc("added to a rate before its logarithm");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::poisson_nll_loss(in[0], in[1], log_input, full, eps, reduction);
  }
};

/// Source: Koenker & Bassett 1978, "Regression quantiles"; scikit-learn's mean_pinball_loss for one of them.
struct QuantileLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kCounts;
  static constexpr bool kLabelsAsNumbers = false;  // which have another shape than the output
  std::vector<double> quantiles = {0.1, 0.5, 0.9};
  static void describe(auto& f) {
    f.optional("quantiles", &QuantileLoss::quantiles)
        .not_empty("expected at least one quantile")
        .doc("the quantiles along the output's last dimension: between 0 and 1, ascending; 0.5 is the median");
  }
  void check(Checker& checker) const {
    for (size_t i = 0; i < quantiles.size(); ++i) {
      const bool fits = quantiles[i] > 0 && quantiles[i] < 1 && (i == 0 || quantiles[i] > quantiles[i - 1]);
      if (!fits) checker.fail("quantiles", "expected numbers between 0 and 1, each greater than the one before");
    }
  }
  void require(const LayerInputs& in, const std::vector<std::string>&) const {
    std::vector<int64_t> output = in.shape(0).vec();
    std::vector<int64_t> target = in.shape(1).vec();
    const bool is_one = target.size() == output.size() && !target.empty() && target.back() == 1;
    if (is_one) target.pop_back();
    target.push_back(static_cast<int64_t>(quantiles.size()));
    if (output == target) return;
    throw LayerError("the output is " + shape_text(in.shape(0)) + " and the target " + shape_text(in.shape(1)) +
                     "; expected an output " + shape_text(target) + ", whose last dimension are the quantiles");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    const at::Tensor target = in[1].dim() == in[0].dim() ? in[1] : in[1].unsqueeze(-1);
    const at::Tensor errors = target.to(in[0].scalar_type()) - in[0];
    const at::Tensor levels = ClassWeights(quantiles).like(in[0]);
    const at::Tensor losses = at::maximum(levels * errors, (levels - 1) * errors);
    return reduction == at::Reduction::Mean ? losses.mean() : losses.sum();
  }
};

/// Source: torch.nn.functional.gaussian_nll_loss, which is no ATen function.
struct GaussianNLLLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kScaled;
  bool full = false;
  double eps = 1e-6;
  static std::vector<std::string> roles() { return {"output", "target", "variance"}; }
  static void describe(auto& f) {
    f.optional("full", &GaussianNLLLoss::full).doc("add the constant log(2 pi) / 2");
    f.optional("eps", &GaussianNLLLoss::eps).greater_than(0).doc("the least variance");
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    LayerInputs first_two;
    first_two.examples = {in.examples[0], in.examples[1]};
    require_alike(first_two, roles);
    std::vector<int64_t> lacking = in.shape(0).vec();  // one variance for a whole last dimension
    if (!lacking.empty()) lacking.pop_back();
    std::vector<int64_t> single = lacking;
    single.push_back(1);
    const at::IntArrayRef variance = in.shape(2);
    if (variance == in.shape(0) || variance == at::IntArrayRef(lacking) || variance == at::IntArrayRef(single)) return;
    throw LayerError("the output is " + shape_text(in.shape(0)) + " and the variance " + shape_text(variance) +
                     "; they must have the same shape, except that the variance's last dimension may be 1");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    at::Tensor variance = in[2].dim() == in[0].dim() ? in[2].clone() : in[2].unsqueeze(-1).clone();
    TORCH_CHECK(variance.is_meta() || !variance.lt(0).any().item<bool>(), "a variance is negative");
    {
      const c10::AutoGradMode no_gradients(false);  // what is below eps has a gradient all the same
      variance.clamp_min_(eps);
    }
    at::Tensor losses = 0.5 * (variance.log() + (in[0] - in[1]).square() / variance);
    if (full) losses = losses + 0.5 * std::log(2 * M_PI);
    return reduction == at::Reduction::Mean ? losses.mean() : losses.sum();
  }
};

/// Source: Kingma & Welling 2014, "Auto-Encoding Variational Bayes", appendix B.
struct GaussianKLLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  static std::vector<std::string> roles() { return {"mean", "log_variance"}; }
  static std::vector<std::string> reductions() { return {"mean", "sum", "batchmean"}; }
  static void describe(auto&) {}
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    const at::Tensor losses = -0.5 * (1 + in[1] - in[0].square() - in[1].exp());
    if (reduction == at::Reduction::Mean) return losses.mean();
    return reduction == kBatchMean ? losses.sum() / losses.size(0) : losses.sum();
  }
};

}  // namespace

void add_regression_losses(LossRegistry& losses) {
  losses.add<LossOf<Plain<at::mse_loss>>>(
      "MSELoss", "mean of the squared differences between output and target, which have the same shape");
  losses.add<LossOf<Plain<at::l1_loss>>>("L1Loss", "mean of the absolute differences between output and target");
  losses.add<LossOf<SmoothL1Loss>>("SmoothL1Loss", "squared where the difference is below beta, else linear");
  losses.add<LossOf<HuberLoss>>("HuberLoss",
                                "squared where the difference is below delta, else linear: delta times "
                                "SmoothL1Loss with beta = delta");
  losses.add<LossOf<KLDivLoss>>("KLDivLoss",
                                "Kullback-Leibler divergence of log-probabilities from the target's probabilities");
  losses.add<LossOf<PoissonNLLLoss>>("PoissonNLLLoss", "negative log-likelihood of counts under Poisson rates");
  losses.add<LossOf<GaussianNLLLoss>>(
      "GaussianNLLLoss",
      "negative log-likelihood of targets under normal distributions; inputs: [mean, target, variance]");
  losses.add<LossOf<QuantileLoss>>(
      "QuantileLoss", "pinball losses of the quantiles of a number, or of each of several; output [N, …, quantiles]");
  losses.add<LossOf<GaussianKLLoss>>("GaussianKLLoss",
                                     "divergence of normal distributions from the standard one, such as those of a "
                                     "variational autoencoder's code; inputs: [mean, log_variance]");
}

}  // namespace trainrun
