#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "registry/components/optimizers/grouped_optimizer.h"
#include "registry/kernels/optimizer_pass.h"
#include "registry/language/error.h"
#include "registry/tensors/step_division.h"

namespace trainrun {
namespace {

/// Adam and, with decoupled decay, AdamW: torch.optim's parameters; `foreach`, `fused`, … are not the recipe's
/// business.
template <bool kDecoupled>
struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = kDecoupled ? 1e-2 : 0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled_weight_decay = kDecoupled;
  static void describe(Fields<AdamOptions>& f) {
    f.optional("lr", &AdamOptions::lr).at_least(0).doc("learning rate");
    f.optional("betas", &AdamOptions::betas)
        .at_least(0)
        .less_than(1)
        .doc("decay of the running means of the gradient and of its square");
    f.optional("eps", &AdamOptions::eps).at_least(0).doc("added to the denominator");
    f.optional("weight_decay", &AdamOptions::weight_decay)
        .at_least(0)
        .doc(kDecoupled ? "weight decay: lr times this share of the weights is subtracted in each step"
                        : "weight decay: multiplied by the weights and added to the gradient");
    f.optional("amsgrad", &AdamOptions::amsgrad).doc("divide by the largest second moment so far");
    f.optional("maximize", &AdamOptions::maximize).doc("maximize the loss instead of minimizing it");
    if (kDecoupled) return;
    f.optional("decoupled_weight_decay", &AdamOptions::decoupled_weight_decay)
        .doc("subtract lr times weight_decay times the weights instead, as AdamW does");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const;
};

/// Source: Kingma & Ba 2015; Loshchilov & Hutter 2019 (decoupled decay); Reddi et al. 2018 (amsgrad).
template <bool kDecoupled>
class Adam : public GroupedOptimizer, public DividesStep {
 public:
  bool is_elementwise() const override { return true; }
  explicit Adam(const OptimizerInputs& inputs)
      : GroupedOptimizer(inputs, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"}) {
    const c10::AutoGradMode no_gradients(false);
    for (Group& group : groups_) {
      options_.push_back(*static_cast<const AdamOptions<kDecoupled>*>(group.parameters.options.get()));
      add_group(group.parameters.rates(options_.back().lr, options_.back().betas[0]));
      for (const at::Tensor& parameter : group.parameters.tensors) {
        group.lists[0].push_back(at::zeros_like(parameter));
        group.lists[1].push_back(at::zeros_like(parameter));
        if (options_.back().amsgrad) group.lists[2].push_back(at::zeros_like(parameter));
        group.lists[3].push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
      }
    }
  }

  void step(const StepContext& context) override {
    const c10::AutoGradMode no_gradients(false);
    kernels::AdamPass pass(context.factors);
    for (size_t i = 0; i < groups_.size(); ++i) {
      Active now = active(groups_[i]);
      if (now.parameters.empty()) continue;
      if (is_for_pass(now, context)) {
        add_to(pass, now, options_[i], context.rates[i]);
      } else if (division_) {
        throw Error("a parameter's memory has changed, so that ranks can no longer divide the optimizer's step");
      } else {
        step_by_aten(now, options_[i], context.rates[i], context);
      }
    }
    pass.run(division_);
  }

  std::optional<DivisibleStep> divisible_step() override {
    DivisibleStep divisible;
    for (const Group& group : groups_) {
      const Tensors& parameters = group.parameters.tensors;
      if (!std::all_of(parameters.begin(), parameters.end(), kernels::is_for_optimizer_pass)) return std::nullopt;
      divisible.exchange_bytes += kernels::exchange_bytes(parameters);
      for (const size_t k : {0, 1, 2}) {  // the counts of steps are each rank's own
        divisible.state.insert(divisible.state.end(), group.lists[k].begin(), group.lists[k].end());
      }
    }
    return divisible;
  }

 private:
  using Options = AdamOptions<kDecoupled>;

  static void add_to(kernels::AdamPass& pass, const Active& now, const Options& o, const GroupRates& rates) {
    for (size_t k = 0; k < now.parameters.size(); ++k) {
      auto& step = *now.lists[3][k].template mutable_data_ptr<float>();
      step += 1;
      const auto numbers = kernels::adam_numbers(rates.lr, *rates.momentum, o.betas[1], o.eps, o.weight_decay,
                                                 o.decoupled_weight_decay, o.amsgrad, static_cast<double>(step));
      pass.add(now.parameters[k], now.gradients[k],
               {now.lists[0][k], now.lists[1][k], o.amsgrad ? now.lists[2][k] : at::Tensor()}, numbers, o.maximize);
    }
  }

  static void step_by_aten(Active& now, const Options& o, const GroupRates& rates, const StepContext& context) {
    multiply(now.gradients, context.factors);
    at::_foreach_add_(now.lists[3], 1);
    const std::optional<at::Tensor> skips = context.overflow.defined() ? std::optional(context.overflow) : std::nullopt;
    const auto kernel = [&](auto function) {
      function(now.parameters, now.gradients, now.lists[0], now.lists[1], now.lists[2], now.lists[3], rates.lr,
               *rates.momentum, o.betas[1], o.weight_decay, o.eps, o.amsgrad, o.maximize, std::nullopt, skips);
    };
    if (o.decoupled_weight_decay) {
      kernel([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      kernel([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
    if (skips) at::_foreach_sub_(now.lists[3], Tensors(now.lists[3].size(), *skips));
  }

  std::vector<AdamOptions<kDecoupled>> options_;
};

template <bool kDecoupled>
std::unique_ptr<Optimizer> AdamOptions<kDecoupled>::build(const OptimizerInputs& inputs) const {
  return std::make_unique<Adam<kDecoupled>>(inputs);
}

}  // namespace

void add_adam_family(OptimizerRegistry& optimizers) {
  optimizers.add<AdamOptions<false>>("Adam", "adaptive moments");
  optimizers.add<AdamOptions<true>>("AdamW", "adaptive moments with decoupled weight decay");
}

}  // namespace trainrun
