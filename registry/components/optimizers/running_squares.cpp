#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "registry/components/optimizers/foreach_optimizer.h"

// Steps divided by the root of the squared gradients so far. The order of operations is that of torch.optim's foreach
// forms.

namespace trainrun {
namespace {

/// Source: Tieleman & Hinton 2012, lecture 6.5; Graves 2013 (centered).
struct RMSprop {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
  static void describe(Fields<RMSprop>& f) {
    describe_common(f);
    f.optional("alpha", &RMSprop::alpha).at_least(0).doc("decay of the running mean of the squared gradient");
    f.optional("momentum", &RMSprop::momentum).at_least(0).doc("momentum: share of the previous step that is kept");
    f.optional("centered", &RMSprop::centered).doc("divide by the deviation from the mean gradient");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<RMSprop>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "square_avg", "momentum_buffer", "grad_avg"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const {
    state[1] = at::zeros_like(parameter);
    state[2] = at::zeros_like(parameter);  // also without momentum: a scheduler may bring it
    if (centered) state[3] = at::zeros_like(parameter);
  }
  void update(GroupStep& now) const {
    const Tensors& squares = now.state[1];
    at::_foreach_mul_(squares, alpha);
    at::_foreach_addcmul_(squares, now.gradients, now.gradients, 1 - alpha);
    Tensors root;
    if (centered) {
      at::_foreach_lerp_(now.state[3], now.gradients, 1 - alpha);
      root = at::_foreach_addcmul(squares, now.state[3], now.state[3], -1);
      at::_foreach_sqrt_(root);
    } else {
      root = at::_foreach_sqrt(squares);
    }
    at::_foreach_add_(root, eps);
    if (now.momentum > 0) {
      at::_foreach_mul_(now.state[2], now.momentum);
      at::_foreach_addcdiv_(now.state[2], now.gradients, root);
      at::_foreach_add_(now.parameters, now.state[2], -now.lr);
    } else {
      at::_foreach_addcdiv_(now.parameters, now.gradients, root, -now.lr);
    }
  }
  static constexpr std::array<size_t, 3> kWalked = {1, 3, 2};
  kernels::RMSpropNumbers numbers(const GroupStep& now, size_t) const {
    return {now.lr, alpha, eps, now.momentum, centered};
  }
};

/// Source: Duchi et al. 2011, "Adaptive subgradient methods".
struct Adagrad {
  static constexpr bool kRawGradients = true;  // the fused kernel knows decay and maximize
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
  static void describe(Fields<Adagrad>& f) {
    describe_common(f);
    f.optional("lr_decay", &Adagrad::lr_decay).at_least(0).doc("the rate is lr / (1 + steps * lr_decay)");
    f.optional("initial_accumulator_value", &Adagrad::initial_accumulator_value)
        .at_least(0)
        .doc("initial value of the sum of squares");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<Adagrad>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "sum"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const {
    state[1] = at::full_like(parameter, initial_accumulator_value);
  }
  void update(GroupStep& now) const {
    Tensors steps = now.state[0];
    if (!now.parameters[0].is_cpu()) {
      steps = at::stack(steps).to(now.parameters[0].device(), at::kFloat, /*non_blocking=*/true).unbind();
    }
    at::_fused_adagrad_(now.parameters, now.gradients, now.state[1], steps, now.lr, lr_decay, weight_decay, eps,
                        maximize);
  }
  static constexpr std::array<size_t, 1> kWalked = {1};
  kernels::AdagradNumbers numbers(const GroupStep& now, size_t i) const {
    return {now.lr / std::fma(now.count(0, i) - 1, lr_decay, 1), eps};  // rounded once, as in ATen's kernel
  }
};

/// Source: Zeiler 2012, "ADADELTA".
struct Adadelta {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
  static void describe(Fields<Adadelta>& f) {
    describe_common(f);
    f.optional("rho", &Adadelta::rho)
        .at_least(0)
        .at_most(1)
        .doc("decay of the running means of squared gradients and steps");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<Adadelta>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "square_avg", "acc_delta"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const {
    state[1] = at::zeros_like(parameter);
    state[2] = at::zeros_like(parameter);
  }
  void update(GroupStep& now) const {
    const Tensors& squares = now.state[1];
    const Tensors& steps = now.state[2];
    at::_foreach_mul_(squares, rho);
    at::_foreach_addcmul_(squares, now.gradients, now.gradients, 1 - rho);
    Tensors root = at::_foreach_add(squares, eps);
    at::_foreach_sqrt_(root);
    Tensors deltas = at::_foreach_add(steps, eps);
    at::_foreach_sqrt_(deltas);
    at::_foreach_div_(deltas, root);
    at::_foreach_mul_(deltas, now.gradients);
    at::_foreach_mul_(steps, rho);
    at::_foreach_addcmul_(steps, deltas, deltas, 1 - rho);
    at::_foreach_add_(now.parameters, deltas, -now.lr);
  }
  static constexpr std::array<size_t, 2> kWalked = {1, 2};
  kernels::AdadeltaNumbers numbers(const GroupStep& now, size_t) const { return {now.lr, rho, eps}; }
};

}  // namespace

void add_running_squares(OptimizerRegistry& optimizers) {
  optimizers.add<RMSprop>("RMSprop", "the gradient divided by the root of its running mean square, with momentum");
  optimizers.add<Adagrad>("Adagrad", "the gradient divided by the root of the sum of all its squares so far");
  optimizers.add<Adadelta>(
      "Adadelta", "steps scaled by the size of recent steps, so that the unit of the gradient does not matter");
}

}  // namespace trainrun
