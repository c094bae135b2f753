#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "registry/components/optimizers/foreach_optimizer.h"
#include "registry/components/optimizers/norms.h"

// Steps measured against the weights of their own layer, for large batches.

namespace trainrun {
namespace {

/// Source: You et al. 2020, "Large batch optimization for deep learning", algorithm 2 with phi the identity.
struct LAMB {
  static constexpr bool kWholeTensors = true;
  static constexpr bool kRawGradients = true;  // decay is part of the step that is measured
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
  static void describe(Fields<LAMB>& f) {
    f.optional("lr", &LAMB::lr).at_least(0).doc("learning rate");
    f.optional("betas", &LAMB::betas)
        .at_least(0)
        .less_than(1)
        .doc("decay of the running means of the gradient and of its square");
    f.optional("eps", &LAMB::eps).at_least(0).doc("added to the denominator");
    f.optional("weight_decay", &LAMB::weight_decay)
        .at_least(0)
        .doc("weight decay: multiplied by the weights and added to the step");
    f.optional("maximize", &LAMB::maximize).doc("maximize the loss instead of minimizing it");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<LAMB>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "exp_avg", "exp_avg_sq"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const {
    state[1] = at::zeros_like(parameter);
    state[2] = at::zeros_like(parameter);
  }
  void update(GroupStep& now) const {
    if (maximize) now.gradients = at::_foreach_neg(now.gradients);
    at::_foreach_lerp_(now.state[1], now.gradients, 1 - now.momentum);
    at::_foreach_mul_(now.state[2], betas[1]);
    at::_foreach_addcmul_(now.state[2], now.gradients, now.gradients, 1 - betas[1]);
    Tensors root = at::_foreach_sqrt(now.state[2]);
    at::_foreach_div_(root, now.by_step(0, [&](double step) { return std::sqrt(1 - std::pow(betas[1], step)); }));
    at::_foreach_add_(root, eps);
    Tensors steps = at::_foreach_div(now.state[1], root);
    at::_foreach_div_(steps, now.by_step(0, [&](double step) { return 1 - std::pow(now.momentum, step); }));
    if (weight_decay != 0) at::_foreach_add_(steps, now.parameters, weight_decay);
    const at::Tensor of_weights = norms_of(now.parameters);
    const at::Tensor of_steps = norms_of(steps);
    const at::Tensor is_measured = of_weights.gt(0).logical_and(of_steps.gt(0));
    steps = scaled(steps, at::where(is_measured, of_weights.div(of_steps), 1).mul(-now.lr));
    at::_foreach_add_(now.parameters, steps);
  }
};

/// Source: You, Gitman & Ginsburg 2017, "Large batch training of convolutional networks", algorithm 1.
struct LARS {
  static constexpr bool kWholeTensors = true;
  static constexpr bool kRawGradients = true;  // the gradient is measured without decay
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  std::optional<double> trust_coefficient = 1e-3;
  double eps = 1e-8;
  bool maximize = false;
  static void describe(Fields<LARS>& f) {
    f.optional("lr", &LARS::lr).at_least(0).doc("learning rate of all layers");
    f.optional("momentum", &LARS::momentum).at_least(0).doc("momentum: share of the previous step that is kept");
    f.optional("weight_decay", &LARS::weight_decay)
        .at_least(0)
        .doc("weight decay: multiplied by the weights and added to the gradient");
    f.optional("trust_coefficient", &LARS::trust_coefficient)
        .greater_than(0)
        .doc("ratio of a layer's step to its weights; null (for example for biases) uses lr as it is");
    f.optional("eps", &LARS::eps).at_least(0).doc("added to the denominator");
    f.optional("maximize", &LARS::maximize).doc("maximize the loss instead of minimizing it");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<LARS>(inputs); }

  static std::vector<std::string> state_names() { return {"momentum_buffer"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const { state[0] = at::zeros_like(parameter); }
  void update(GroupStep& now) const {
    if (maximize) now.gradients = at::_foreach_neg(now.gradients);
    Tensors steps = weight_decay != 0 ? at::_foreach_add(now.gradients, now.parameters, weight_decay) : now.gradients;
    if (trust_coefficient) {
      const at::Tensor of_weights = norms_of(now.parameters);
      const at::Tensor of_gradients = norms_of(now.gradients);
      const at::Tensor sizes = of_gradients.add(of_weights.mul(weight_decay)).add(eps);
      const at::Tensor is_measured = of_weights.gt(0).logical_and(of_gradients.gt(0));
      const at::Tensor trusted = of_weights.mul(now.lr * *trust_coefficient).div(sizes);
      steps = scaled(steps, at::where(is_measured, trusted, now.lr));
    } else {
      steps = at::_foreach_mul(steps, now.lr);
    }
    at::_foreach_mul_(now.state[0], now.momentum);
    at::_foreach_add_(now.state[0], steps);
    at::_foreach_sub_(now.parameters, now.state[0]);
  }
};

}  // namespace

void add_large_batch_optimizers(OptimizerRegistry& optimizers) {
  optimizers.add<LAMB>("LAMB", "Adam with steps in proportion to each layer's weights");
  optimizers.add<LARS>("LARS", "SGD with steps in proportion to each layer's weights");
}

}  // namespace trainrun
