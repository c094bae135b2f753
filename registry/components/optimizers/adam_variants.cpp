#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_reciprocal.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <cmath>

#include "registry/components/optimizers/foreach_optimizer.h"

// Relatives of Adam that have no fused kernel in ATen. The order of operations is that of torch.optim's foreach forms.

namespace trainrun {
namespace {

void start_moments(const at::Tensor& parameter, Tensors& state) {
  state[1] = at::zeros_like(parameter);
  state[2] = at::zeros_like(parameter);
}

/// The running means of the gradient and of its square, in state lists 1 and 2.
void update_moments(GroupStep& now, double beta2) {
  at::_foreach_lerp_(now.state[1], now.gradients, 1 - now.momentum);
  at::_foreach_mul_(now.state[2], beta2);
  at::_foreach_addcmul_(now.state[2], now.gradients, now.gradients, 1 - beta2);
}

/// Source: Kingma & Ba 2015, section 7.
struct Adamax {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
  static void describe(Fields<Adamax>& f) { describe_common(f); }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<Adamax>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "exp_avg", "exp_inf"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const { start_moments(parameter, state); }
  void update(GroupStep& now) const {
    at::_foreach_lerp_(now.state[1], now.gradients, 1 - now.momentum);
    at::_foreach_mul_(now.state[2], betas[1]);
    Tensors sizes = at::_foreach_abs(now.gradients);
    at::_foreach_add_(sizes, eps);
    at::_foreach_maximum_(now.state[2], sizes);
    const auto rates = now.by_step(0, [&](double step) { return -now.lr / (1 - std::pow(now.momentum, step)); });
    at::_foreach_addcdiv_(now.parameters, now.state[1], now.state[2], rates);
  }
  static constexpr std::array<size_t, 2> kWalked = {1, 2};
  kernels::AdamaxNumbers numbers(const GroupStep& now, size_t i) const {
    return {1 - now.momentum, betas[1], eps, -now.lr / (1 - std::pow(now.momentum, now.count(0, i)))};
  }
};

/// Source: Dozat 2016, "Incorporating Nesterov momentum into Adam".
struct NAdam {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false;
  static void describe(Fields<NAdam>& f) {
    describe_common(f);
    f.optional("momentum_decay", &NAdam::momentum_decay).at_least(0).doc("how fast the momentum reaches its full size");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<NAdam>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "exp_avg", "exp_avg_sq", "mu_product"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const {
    start_moments(parameter, state);
    state[3] = scalar_state(1);
  }
  void update(GroupStep& now) const {
    update_moments(now, betas[1]);
    Tensors root = at::_foreach_sqrt(now.state[2]);
    at::_foreach_div_(root, now.by_step(0, [&](double step) { return std::sqrt(1 - std::pow(betas[1], step)); }));
    at::_foreach_add_(root, eps);
    std::vector<at::Scalar> of_gradients, of_means;
    for (size_t i = 0; i < now.parameters.size(); ++i) {
      const auto [of_gradient, of_mean] = next_rates(now, i);
      of_gradients.emplace_back(of_gradient);
      of_means.emplace_back(of_mean);
    }
    at::_foreach_addcdiv_(now.parameters, now.gradients, root, of_gradients);
    at::_foreach_addcdiv_(now.parameters, now.state[1], root, of_means);
  }
  static constexpr std::array<size_t, 2> kWalked = {1, 2};
  kernels::NAdamNumbers numbers(const GroupStep& now, size_t i) const {
    const auto [of_gradient, of_mean] = next_rates(now, i);
    return {1 - now.momentum, betas[1], eps, std::sqrt(1 - std::pow(betas[1], now.count(0, i))), of_gradient, of_mean};
  }
  /// By which the gradient and the mean go into the step; updates the product of momenta.
  std::pair<double, double> next_rates(const GroupStep& now, size_t i) const {
    const auto mu = [&](double step) { return now.momentum * (1 - 0.5 * std::pow(0.96, step * momentum_decay)); };
    const double step = now.count(0, i);
    number_in(now.state[3][i]) *= static_cast<float>(mu(step));
    const double product = now.count(3, i);
    return {-now.lr * (1 - mu(step)) / (1 - product), -now.lr * mu(step + 1) / (1 - product * mu(step + 1))};
  }
};

/// Source: Liu et al. 2020, "On the variance of the adaptive learning rate and beyond".
struct RAdam {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;
  static void describe(Fields<RAdam>& f) { describe_common(f); }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<RAdam>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "exp_avg", "exp_avg_sq"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const { start_moments(parameter, state); }
  /// How far the second moment is to be trusted after so many steps; 0: not yet.
  double rectification(double step) const {
    const double longest = 2 / (1 - betas[1]) - 1;
    const double power = std::pow(betas[1], step);
    const double length = longest - 2 * step * power / (1 - power);
    if (length <= 5) return 0;
    return std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
  }
  void update(GroupStep& now) const {
    update_moments(now, betas[1]);
    Tensors factors = at::_foreach_sqrt(now.state[2]);
    at::_foreach_add_(factors, eps);
    at::_foreach_div_(factors, now.by_step(0, [&](double step) { return divisor(now, step); }));
    at::_foreach_reciprocal_(factors);
    at::_foreach_add_(factors, now.by_step(0, [&](double step) { return added(now, step); }));
    at::_foreach_addcmul_(now.parameters, now.state[1], factors);
  }
  static constexpr std::array<size_t, 2> kWalked = {1, 2};
  kernels::RAdamNumbers numbers(const GroupStep& now, size_t i) const {
    const double step = now.count(0, i);
    return {1 - now.momentum, betas[1], eps, divisor(now, step), added(now, step)};
  }
  static double rate(const GroupStep& now, double step) { return -now.lr / (1 - std::pow(now.momentum, step)); }
  /// 0 where there is no trust: the inverse of what is divided by it is 0.
  double divisor(const GroupStep& now, double step) const {
    return std::sqrt(1 - std::pow(betas[1], step)) * rectification(step) * rate(now, step);
  }
  double added(const GroupStep& now, double step) const { return rectification(step) > 0 ? 0 : rate(now, step); }
};

/// Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2.
struct Lion {
  static constexpr bool kDecoupled = true;
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;
  bool maximize = false;
  static void describe(Fields<Lion>& f) {
    f.optional("lr", &Lion::lr).at_least(0).doc("learning rate: the amount by which each weight changes in a step");
    f.optional("betas", &Lion::betas)
        .at_least(0)
        .less_than(1)
        .doc("share of the running mean in the step, and its decay");
    f.optional("weight_decay", &Lion::weight_decay)
        .at_least(0)
        .doc("weight decay: lr times this share of the weights is subtracted in each step");
    f.optional("maximize", &Lion::maximize).doc("maximize the loss instead of minimizing it");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<Lion>(inputs); }

  static std::vector<std::string> state_names() { return {"exp_avg"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const { state[0] = at::zeros_like(parameter); }
  void update(GroupStep& now) const {
    Tensors steps = at::_foreach_lerp(now.state[0], now.gradients, 1 - now.momentum);
    at::_foreach_sign_(steps);
    at::_foreach_add_(now.parameters, steps, -now.lr);
    at::_foreach_lerp_(now.state[0], now.gradients, 1 - betas[1]);
  }
  static constexpr std::array<size_t, 1> kWalked = {0};
  kernels::LionNumbers numbers(const GroupStep& now, size_t) const { return {now.lr, 1 - now.momentum, 1 - betas[1]}; }
};

}  // namespace

void add_adam_variants(OptimizerRegistry& optimizers) {
  optimizers.add<Adamax>("Adamax", "Adam with the largest gradient in place of the mean square");
  optimizers.add<NAdam>("NAdam", "Adam with Nesterov momentum");
  optimizers.add<RAdam>("RAdam", "Adam that uses its second moment only once it has seen enough gradients");
  optimizers.add<Lion>("Lion", "the sign of a running mean of the gradient");
}

}  // namespace trainrun
