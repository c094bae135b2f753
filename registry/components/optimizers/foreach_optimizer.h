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
#include <utility>

#include "registry/components/optimizers/grouped_optimizer.h"
#include "registry/kernels/optimizer_pass.h"

namespace trainrun {

/// The number that a tensor without dimensions holds, of a state's float32 numbers: they are the host's.
inline float& number_in(const at::Tensor& tensor) { return *tensor.mutable_data_ptr<float>(); }

/// One step of one group: the parameters that have a gradient, and what goes with them.
struct GroupStep {
  Tensors parameters;
  Tensors gradients;           // to descend along, decay added; the parameters' own where neither was asked for
  std::vector<Tensors> state;  // state[k][i]: list k of parameter i; "step" is counted already
  double lr = 0;
  double momentum = 0;  // or Adam's first beta, as a scheduler has it now

  /// The host's number of parameter i in `state[list]`.
  double count(size_t list, size_t i) const { return static_cast<double>(number_in(state[list][i])); }

  /// `function(step)` of each parameter, for the foreach operations that take a number a tensor. `state[list]` is
  /// "step".
  template <class Function>
  std::vector<at::Scalar> by_step(size_t list, const Function& function) const {
    std::vector<at::Scalar> scalars;
    for (size_t i = 0; i < state[list].size(); ++i) scalars.emplace_back(function(count(list, i)));
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
/// and, if it is one of registry/kernels/optimizer_simd.h, whose one walk gives the same bits as `update`,
///   static constexpr std::array<size_t, 1> kWalked;   // the state lists that the walk changes, in the kernel's order
///   kernels::LionNumbers numbers(const GroupStep& step, size_t i) const;   // of parameter i; without decay. Called once
///                                                                          // in a step: counts what the host counts
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
    [[maybe_unused]] auto pass = new_pass(context);
    for (size_t i = 0; i < groups_.size(); ++i) {
      start_new(i, context);
      const Active now = active(groups_[i]);
      const GroupRates& rates = context.rates[i];
      if constexpr (kIsWalked) {
        if (is_for_walk(now, context)) {
          add_to(pass, options_[i], now, rates);
          continue;
        }
      }
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
    if constexpr (kIsWalked) pass.run();
  }

  bool is_elementwise() const override {
    return !requires { Options::kWholeTensors; };
  }

  /// State begins with a parameter's first gradient: what was not saved has not begun.
  void load_state(const std::map<std::string, at::Tensor>& saved) override {
    forget_last_step();
    std::map<std::string, at::Tensor> unknown = saved;
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      for (size_t i = 0; i < group.parameters.names.size(); ++i) {
        const Tensors fresh = started(g, i, initial_rates()[g].lr);
        for (size_t k = 0; k < list_names_.size(); ++k) {
          const auto it = saved.find(group.parameters.names[i] + "." + list_names_[k]);
          group.lists[k][i] = at::Tensor();
          if (it == saved.end()) continue;
          const bool fits = fresh[k].defined() && fresh[k].sizes() == it->second.sizes();
          group.lists[k][i] = fits ? fresh[k] : like(it->second, group.parameters.tensors[i]);
          unknown.erase(it->first);
        }
      }
    }
    if (!unknown.empty())
      throw Error("the checkpoint's optimizer has " + unknown.begin()->first + ", this one has not");
    Optimizer::load_state(saved);
  }

 private:
  static constexpr bool kIsWalked = requires(const Options& o, const GroupStep& step) { o.numbers(step, size_t{}); };

  static auto new_pass(const StepContext& context) {
    if constexpr (kIsWalked) {
      using Numbers = decltype(std::declval<const Options&>().numbers(std::declval<const GroupStep&>(), size_t{}));
      return kernels::OptimizerPass<Numbers>(context.factors);
    } else {
      return nullptr;
    }
  }
  static bool is_for_walk(const Active& now, const StepContext& context) {
    if (!is_for_pass(now, context)) return false;
    for (const size_t k : Options::kWalked) {
      for (size_t i = 0; i < now.lists[k].size(); ++i) {
        const at::Tensor& list = now.lists[k][i];  // a loaded one may be of another type
        const at::Tensor& parameter = now.parameters[i];
        if (!list.defined()) continue;
        if (list.scalar_type() != parameter.scalar_type() || list.strides() != parameter.strides()) return false;
      }
    }
    return true;
  }
  template <class Pass>
  void add_to(Pass& pass, const Options& o, const Active& now, const GroupRates& rates) const {
    const GroupStep step{now.parameters, now.gradients, now.lists, rates.lr, rates.momentum.value_or(0)};
    for (size_t i = 0; i < now.parameters.size(); ++i) {
      if (step_list_) number_in(now.lists[*step_list_][i]) += 1;
      auto numbers = o.numbers(step, i);
      if constexpr (requires { o.weight_decay; }) {
        numbers.decay.weight_decay = decays_decoupled(o) ? 0 : o.weight_decay;
        numbers.decay.kept_weight = decays_decoupled(o) ? 1 - rates.lr * o.weight_decay : 1;
      }
      Tensors state;
      for (const size_t k : Options::kWalked) state.push_back(now.lists[k][i]);
      pass.add(now.parameters[i], now.gradients[i], state, numbers, o.maximize);
    }
  }

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
  static bool decays_decoupled(const Options& o) {
    if constexpr (requires { o.decoupled_weight_decay; }) return o.decoupled_weight_decay;
    return requires { Options::kDecoupled; };
  }
  static void prepare(const Options& o, GroupStep& step) {
    bool own = false;
    if constexpr (requires { o.maximize; }) {
      if (o.maximize) step.gradients = at::_foreach_neg(step.gradients), own = true;
    }
    if constexpr (requires { o.weight_decay; }) {
      if (o.weight_decay == 0) return;
      if (decays_decoupled(o)) {
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
      const Tensors state = started(i, p, context.rates[i].lr);
      for (size_t k = 0; k < state.size(); ++k) {
        group.lists[k][p] = state[k];
        note_begun(group.lists[k][p], context);
      }
    }
  }

  /// The state of parameter i of a group at its first gradient.
  Tensors started(size_t group, size_t i, double rate) const {
    Tensors state(list_names_.size());
    options_[group].start(groups_[group].parameters.tensors[i], rate, state);
    if (step_list_) state[*step_list_] = scalar_state();
    return state;
  }

  /// A tensor for `saved`, which this optimizer does not begin with: in the memory order of its parameter if it is as
  /// large, and on its device; but numbers stay on the CPU.
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
        .doc("subtract lr times weight_decay times the weights instead, as AdamW does");
  }
  if constexpr (requires { &T::maximize; })
    f.optional("maximize", &T::maximize).doc("maximize the loss instead of minimizing it");
}

}  // namespace trainrun
