#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include "registry/components/optimizers/grouped_optimizer.h"
#include "registry/kernels/optimizer_pass.h"

namespace trainrun {
namespace {

/// torch.optim.SGD's parameters.
struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  static void describe(Fields<SGDOptions>& f) {
    f.optional("lr", &SGDOptions::lr).at_least(0).doc("learning rate");
    f.optional("momentum", &SGDOptions::momentum).at_least(0).doc("momentum: share of the previous step that is kept");
    f.optional("dampening", &SGDOptions::dampening)
        .doc("dampening of the momentum: share of the gradient that is left out");
    f.optional("weight_decay", &SGDOptions::weight_decay)
        .at_least(0)
        .doc("weight decay: multiplied by the weights and added to the gradient");
    f.optional("nesterov", &SGDOptions::nesterov).doc("Nesterov momentum");
    f.optional("maximize", &SGDOptions::maximize).doc("maximize the loss instead of minimizing it");
    f.rule({.when = {the("nesterov").is(true)},
            .all = {the("momentum").is_above(0), the("dampening").is(0)},
            .at = "nesterov",
            .message = "needs a momentum above 0 and no dampening"});
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const;
};

class SGD : public GroupedOptimizer {
 public:
  bool is_elementwise() const override { return true; }
  explicit SGD(const OptimizerInputs& inputs) : GroupedOptimizer(inputs, {"momentum_buffer"}) {
    for (Group& group : groups_) {
      options_.push_back(*static_cast<const SGDOptions*>(group.parameters.options.get()));
      add_group(group.parameters.rates(options_.back().lr, options_.back().momentum));
      group.lists[0].resize(group.parameters.tensors.size());  // made as momentum begins: a scheduler may bring it
    }
  }

  void step(const StepContext& context) override {
    const c10::AutoGradMode no_gradients(false);
    forget_last_step();
    kernels::SgdPass pass(context.factors);
    for (size_t i = 0; i < groups_.size(); ++i) {
      const Active now = active(groups_[i]);
      const bool is_one_pass = is_for_pass(now, context);
      if (!is_one_pass) multiply(now.gradients, context.factors);
      for (const bool first : {true, false}) {  // a parameter's first gradient is its momentum
        const Part part = part_of(i, now, first, context);
        if (part.parameters.empty()) continue;
        if (is_one_pass) {
          add_to(pass, part, options_[i], context.rates[i]);
        } else {
          step_by_aten(part, options_[i], context.rates[i], context.overflow);
        }
      }
    }
    pass.run();
  }

  void load_state(const std::map<std::string, at::Tensor>& saved) override {
    forget_last_step();
    for (Group& group : groups_) {
      for (size_t k = 0; k < group.lists[0].size(); ++k) {
        const bool begun = saved.contains(group.parameters.names[k] + "." + list_names_[0]);
        group.lists[0][k] = begun ? at::empty_like(group.parameters.tensors[k]).detach() : at::Tensor();
      }
    }
    Optimizer::load_state(saved);
  }

 private:
  /// The parameters of a group whose momentum begins in this step, or the others.
  struct Part {
    Tensors parameters, gradients, buffers;  // no buffers without momentum
    bool first;
  };

  Part part_of(size_t i, const Active& now, bool first, const StepContext& context) {
    Part part = {{}, {}, {}, first};
    const bool has_momentum = context.rates[i].momentum.value_or(0) != 0;
    for (size_t k = 0; k < now.parameters.size(); ++k) {
      const bool begins = has_momentum && !now.lists[0][k].defined();
      if (begins != first) continue;
      part.parameters.push_back(now.parameters[k]);
      part.gradients.push_back(now.gradients[k]);
      if (!has_momentum) continue;
      at::Tensor& buffer = groups_[i].lists[0][now.indices[k]];
      if (first) {
        buffer = at::empty_like(now.parameters[k]);
        note_begun(buffer, context);
      }
      part.buffers.push_back(buffer);
    }
    return part;
  }

  static void add_to(kernels::SgdPass& pass, const Part& part, const SGDOptions& o, const GroupRates& rates) {
    const kernels::SgdNumbers numbers = {rates.lr,        o.weight_decay, rates.momentum.value_or(0),
                                         1 - o.dampening, o.nesterov,     part.first};
    for (size_t k = 0; k < part.parameters.size(); ++k) {
      pass.add(part.parameters[k], part.gradients[k], {part.buffers.empty() ? at::Tensor() : part.buffers[k]}, numbers,
               o.maximize);
    }
  }

  static void step_by_aten(const Part& part, const SGDOptions& o, const GroupRates& rates, const at::Tensor& overflow) {
    at::_fused_sgd_(part.parameters, part.gradients, part.buffers, o.weight_decay, rates.momentum.value_or(0), rates.lr,
                    o.dampening, o.nesterov, o.maximize, part.first, std::nullopt,
                    overflow.defined() ? std::optional(overflow) : std::nullopt);
  }

  std::vector<SGDOptions> options_;
};

std::unique_ptr<Optimizer> SGDOptions::build(const OptimizerInputs& inputs) const {
  return std::make_unique<SGD>(inputs);
}

}  // namespace

void add_sgd(OptimizerRegistry& optimizers) {
  optimizers.add<SGDOptions>("SGD", "stochastic gradient descent, with momentum");
}

}  // namespace trainrun
