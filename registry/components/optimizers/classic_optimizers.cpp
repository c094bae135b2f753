#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/full_like.h>

#include <cmath>

#include "registry/components/optimizers/foreach_optimizer.h"

namespace trainrun {
namespace {

/// Source: Polyak & Juditsky 1992, "Acceleration of stochastic approximation by averaging".
struct ASGD {
  double lr = 1e-2;
  double lambd = 1e-4;
  double alpha = 0.75;
  double t0 = 1e6;
  double weight_decay = 0;
  bool maximize = false;
  static void describe(Fields<ASGD>& f) {
    describe_common(f);
    f.optional("lambd", &ASGD::lambd).doc("decay of the weights, and of the rate");
    f.optional("alpha", &ASGD::alpha).doc("power of the rate's decay");
    f.optional("t0", &ASGD::t0).doc("when averaging begins").unit("optimizer steps");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<ASGD>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "eta", "mu", "ax"}; }
  void start(const at::Tensor& parameter, double rate, Tensors& state) const {
    state[1] = scalar_state(rate);
    state[2] = scalar_state(1);
    state[3] = at::zeros_like(parameter);
  }
  void update(GroupStep& now) const {
    const Tensors pull = at::_foreach_add(now.gradients, now.parameters, lambd);
    at::_foreach_addcmul_(now.parameters, pull, now.state[1], -1);
    const Tensors apart = at::_foreach_sub(now.parameters, now.state[3]);
    at::_foreach_addcmul_(now.state[3], apart, now.state[2]);
    for (size_t i = 0; i < now.parameters.size(); ++i) set_next(now, i);
  }
  static constexpr std::array<size_t, 1> kWalked = {3};
  kernels::ASGDNumbers numbers(const GroupStep& now, size_t i) const {
    const kernels::ASGDNumbers numbers = {lambd, now.count(1, i), now.count(2, i)};
    set_next(now, i);
    return numbers;
  }
  /// The rate of the next step, and the share of its weights in the average.
  void set_next(const GroupStep& now, size_t i) const {
    const double step = now.count(0, i);
    number_in(now.state[1][i]) = static_cast<float>(now.lr / std::pow(1 + lambd * now.lr * step, alpha));
    number_in(now.state[2][i]) = static_cast<float>(1 / std::max(1.0, step - t0));
  }
};

/// Source: Riedmiller & Braun 1993, "A direct adaptive method for faster backpropagation learning".
struct Rprop {
  double lr = 1e-2;
  std::array<double, 2> etas = {0.5, 1.2};
  std::array<double, 2> step_sizes = {1e-6, 50};
  bool maximize = false;
  static void describe(Fields<Rprop>& f) {
    f.optional("lr", &Rprop::lr).at_least(0).doc("the first step of every weight");
    f.optional("etas", &Rprop::etas)
        .greater_than(0)
        .doc("a step's factors after the gradient changed its sign, and after it did not");
    f.optional("step_sizes", &Rprop::step_sizes).at_least(0).doc("the smallest and the largest step");
    f.optional("maximize", &Rprop::maximize).doc("maximize the loss instead of minimizing it");
  }
  void check(Checker& checker) const {
    if (etas[0] >= 1 || etas[1] <= 1) checker.fail("etas", "needs one below 1 and one above");
    if (step_sizes[0] > step_sizes[1]) checker.fail("step_sizes", "the smallest is larger than the largest");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<Rprop>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "prev", "step_size"}; }
  void start(const at::Tensor& parameter, double rate, Tensors& state) const {
    state[1] = at::zeros_like(parameter);
    state[2] = at::full_like(parameter, rate);
  }
  void update(GroupStep& now) const {
    const Tensors& previous = now.state[1];
    const Tensors& sizes = now.state[2];
    Tensors factors = at::_foreach_mul(now.gradients, previous);
    at::_foreach_sign_(factors);
    at::_foreach_copy_(previous, now.gradients);
    for (size_t i = 0; i < factors.size(); ++i) {  // masks have no operation on lists
      const at::Tensor turned = factors[i].lt(0);
      factors[i].masked_fill_(factors[i].gt(0), etas[1]).masked_fill_(turned, etas[0]);
      factors[i].masked_fill_(factors[i].eq(0), 1);
      sizes[i].mul_(factors[i]).clamp_(step_sizes[0], step_sizes[1]);
      previous[i].masked_fill_(turned, 0);
    }
    at::_foreach_addcmul_(now.parameters, at::_foreach_sign(previous), sizes, -1);
  }
  static constexpr std::array<size_t, 2> kWalked = {1, 2};
  kernels::RpropNumbers numbers(const GroupStep&, size_t) const {
    return {etas[0], etas[1], step_sizes[0], step_sizes[1]};
  }
};

}  // namespace

void add_classic_optimizers(OptimizerRegistry& optimizers) {
  optimizers.add<ASGD>("ASGD", "stochastic gradient descent that also averages the weights");
  optimizers.add<Rprop>("Rprop", "a step for each weight, longer while its gradient keeps the sign; for whole batches");
}

}  // namespace trainrun
