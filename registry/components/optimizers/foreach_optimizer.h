#pragma once

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "registry/components/optimizers/grouped_optimizer.h"

namespace trainrun {

/// One step of one group: the parameters that have a gradient, and what goes with them.
struct GroupStep {
  Tensors parameters;
  Tensors gradients;           // to descend along, decay added; the parameters' own where neither was asked for
  std::vector<Tensors> state;  // state[k][i]: list k of parameter i; "step" is counted already
  double lr = 0;
  double momentum = 0;  // or Adam's first beta, as a scheduler has it now

  /// `function(step)` of each parameter, for the foreach operations that take a number a tensor. `state[list]` is
  /// "step".
  template <class Function>
  std::vector<at::Scalar> by_step(size_t list, const Function& function) const {
    std::vector<at::Scalar> scalars;
    for (const at::Tensor& step : state[list]) scalars.emplace_back(function(static_cast<double>(step.item<float>())));
    return scalars;
  }
};

inline at::Tensor scalar_state(double value = 0) { return at::zeros({}, at::TensorOptions(at::kFloat)).fill_(value); }

/// An optimizer that is a recipe's struct with
///   static std::vector<std::string> state_names();   // torch.optim's; "step" is counted here
///   void start(const at::Tensor& parameter, double lr, Tensors& state) const;   // at a parameter's first gradient:
///   what
///                                                                               // stays undefined is not kept
///   void update(GroupStep& step) const;
/// `lr`, and where it has them `maximize`, `weight_decay`, `momentum` or `betas` are taken care of here: decay goes
/// into the gradient, or, where `decoupled_weight_decay` or `kDecoupled` is true, straight to the weights. One with
/// `kRawGradients` does all that itself. One that looks at more than an element at a time says `kWholeTensors`.
template <class Options>
class ForeachOptimizer : public GroupedOptimizer {
 public:
  explicit ForeachOptimizer(const OptimizerInputs& inputs) : GroupedOptimizer(inputs, Options::state_names()) {
    const auto names = Options::state_names();
    const auto step = std::find(names.begin(), names.end(), "step");
    if (step != names.end()) step_list_ = static_cast<size_t>(step - names.begin());
    for (Group& group : groups_) {
      options_.push_back(*static_cast<const Options*>(group.parameters.options.get()));
      const Options& o = options_.back();
      std::optional<double> momentum;
      if constexpr (requires { o.betas; }) momentum = o.betas[0];
      if constexpr (requires { o.momentum; }) momentum = o.momentum;
      add_group(group.parameters.rates(o.lr, momentum));
      for (Tensors& list : group.lists) list.resize(group.parameters.tensors.size());
      if constexpr (requires { o.check_parameters(group.parameters); }) o.check_parameters(group.parameters);
    }
  }

  void step(const StepContext& context) override {
    const c10::AutoGradMode no_gradients(false);
    forget_last_step();
    for (size_t i = 0; i < groups_.size(); ++i) {
      start_new(i, context);
      const Active now = active(groups_[i]);
      const GroupRates& rates = context.rates[i];
      for (size_t begin = 0; begin < now.parameters.size();) {
        const size_t end = end_of_part(now.parameters, begin, context.overflow.defined());
        GroupStep step{slice(now.parameters, begin, end),
                       slice(now.gradients, begin, end),
                       {},
                       rates.lr,
                       rates.momentum.value_or(0)};
        multiply(step.gradients, context.factors);
        for (const Tensors& list : now.lists) step.state.push_back(slice(list, begin, end));
        BeforeStep before(context.overflow);
        before.keep(step.parameters);
        for (const Tensors& list : step.state) before.keep(list);
        if (step_list_) at::_foreach_add_(step.state[*step_list_], one_, 1);
        if constexpr (!requires { Options::kRawGradients; }) prepare(options_[i], step);
        options_[i].update(step);
        before.restore();
        note_numbers(before);
        begin = end;
      }
    }
  }

  bool is_elementwise() const override {
    return !requires { Options::kWholeTensors; };
  }

  /// State begins with a parameter's first gradient: what was not saved has not begun.
  void load_state(const std::map<std::string, at::Tensor>& saved) override {
    forget_last_step();
    std::map<std::string, at::Tensor> unknown = saved;
    for (Group& group : groups_) {
      for (size_t i = 0; i < group.parameters.names.size(); ++i) {
        for (size_t k = 0; k < list_names_.size(); ++k) {
          const auto it = saved.find(group.parameters.names[i] + "." + list_names_[k]);
          group.lists[k][i] = at::Tensor();
          if (it == saved.end()) continue;
          group.lists[k][i] = k == step_list_ ? scalar_state() : like(it->second, group.parameters.tensors[i]);
          unknown.erase(it->first);
        }
      }
    }
    if (!unknown.empty())
      throw Error("the checkpoint's optimizer has " + unknown.begin()->first + ", this one has not");
    Optimizer::load_state(saved);
  }

 private:
  /// On the CPU, where operations on lists are loops, a group is done in parts whose temporaries stay in the cache. On a
  /// GPU it is done at once, but where copies are made for a step that may be skipped, they must not take much memory.
  static size_t end_of_part(const Tensors& parameters, size_t begin, bool may_be_skipped) {
    const bool is_on_cpu = parameters[begin].is_cpu();
    if (!is_on_cpu && !may_be_skipped) return parameters.size();
    const int64_t part_numel = is_on_cpu ? 16384 : int64_t{1} << 24;
    int64_t numel = parameters[begin].numel();
    size_t end = begin + 1;
    while (end < parameters.size() && (numel += parameters[end].numel()) <= part_numel) ++end;
    return end;
  }
  static Tensors slice(const Tensors& list, size_t begin, size_t end) {
    return {list.begin() + static_cast<std::ptrdiff_t>(begin), list.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  static void prepare(const Options& o, GroupStep& step) {
    bool own = false;
    if constexpr (requires { o.maximize; }) {
      if (o.maximize) step.gradients = at::_foreach_neg(step.gradients), own = true;
    }
    if constexpr (requires { o.weight_decay; }) {
      bool decoupled = requires { Options::kDecoupled; };
      if constexpr (requires { o.decoupled_weight_decay; }) decoupled = o.decoupled_weight_decay;
      if (o.weight_decay == 0) return;
      if (decoupled) {
        at::_foreach_mul_(step.parameters, 1 - step.lr * o.weight_decay);
      } else if (own) {
        at::_foreach_add_(step.gradients, step.parameters, o.weight_decay);
      } else {
        step.gradients = at::_foreach_add(step.gradients, step.parameters, o.weight_decay);
      }
    }
  }

  void start_new(size_t i, const StepContext& context) {
    Group& group = groups_[i];
    for (size_t p = 0; p < group.parameters.tensors.size(); ++p) {
      const at::Tensor& parameter = group.parameters.tensors[p];
      const bool begun =
          std::any_of(group.lists.begin(), group.lists.end(), [&](auto& list) { return list[p].defined(); });
      if (begun || !parameter.grad().defined()) continue;
      Tensors state(group.lists.size());
      options_[i].start(parameter, context.rates[i].lr, state);
      if (step_list_) state[*step_list_] = scalar_state();
      for (size_t k = 0; k < state.size(); ++k) {
        group.lists[k][p] = state[k];
        note_begun(group.lists[k][p], context);
      }
    }
  }

  /// A tensor for `saved`, in the memory order of its parameter if it is as large, and on its device; but numbers,
  /// which are asked for, stay on the CPU.
  static at::Tensor like(const at::Tensor& saved, const at::Tensor& parameter) {
    if (saved.dim() == 0 && parameter.dim() > 0) return at::empty_like(saved);
    if (saved.sizes() == parameter.sizes() && saved.dim() > 0) return at::empty_like(parameter.detach());
    return at::empty_like(saved, saved.options().device(parameter.device()));
  }

  std::vector<Options> options_;
  std::optional<size_t> step_list_;
  at::Tensor one_ = at::ones({});
};

/// The `build` of a recipe's struct.
template <class Options>
std::unique_ptr<Optimizer> foreach_optimizer(const OptimizerInputs& inputs) {
  return std::make_unique<ForeachOptimizer<Options>>(inputs);
}

/// `lr`, `eps`, `weight_decay`, `maximize`, `betas`, as torch.optim documents them: those that T has.
template <class T>
void describe_common(Fields<T>& f) {
  f.optional("lr", &T::lr).at_least(0).doc("learning rate");
  if constexpr (requires { &T::betas; }) {
    f.optional("betas", &T::betas)
        .at_least(0)
        .less_than(1)
        .doc("decay of the running means of the gradient and of its square");
  }
  if constexpr (requires(T t) { t.eps + 1.0; }) {
    f.optional("eps", &T::eps).at_least(0).doc("added to the denominator");
  }
  if constexpr (requires { &T::weight_decay; }) {
    f.optional("weight_decay", &T::weight_decay)
        .at_least(0)
        .doc("weight decay: multiplied by the weights and added to the gradient");
  }
  if constexpr (requires { &T::decoupled_weight_decay; }) {
    f.optional("decoupled_weight_decay", &T::decoupled_weight_decay)
        .doc("take lr times weight_decay of the weights away instead, as AdamW does");
  }
  if constexpr (requires { &T::maximize; })
    f.optional("maximize", &T::maximize).doc("maximize the loss instead of minimizing it");
}

}  // namespace trainrun
