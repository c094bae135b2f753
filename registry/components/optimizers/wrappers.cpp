#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "registry/components/optimizers/grouped_optimizer.h"
#include "registry/language/name_regex.h"
#include "registry/language/pattern.h"

// Optimizers around an optimizer. Groups, rates and state of the inner one are the outer one's.

namespace trainrun {
namespace {

using Inner = Component<OptimizerKind>;

/// All parameters of a wrapper, to be grouped anew by the optimizers within.
struct Ungrouped {
  NamedTensors parameters;
  std::map<std::string, double> lr_scales;

  explicit Ungrouped(const OptimizerInputs& inputs) {
    for (const ParameterGroup& group : inputs.groups) {
      if (group.options != inputs.groups[0].options) {
        throw Error("param_groups of a wrapped optimizer go inside `optimizer`");
      }
      for (size_t i = 0; i < group.names.size(); ++i) {
        parameters.emplace_back(group.names[i], group.tensors[i]);
        lr_scales[group.names[i]] = group.lr_scale;
      }
    }
  }
};

class Wrapper : public Optimizer {
 public:
  Wrapper(const Inner& inner, const OptimizerInputs& inputs) {
    const Ungrouped all(inputs);
    for (const auto& [name, tensor] : all.parameters) names_.push_back(name), tensors_.push_back(tensor);
    inner_ = inner.build(group_parameters(inner, all.parameters, all.lr_scales));
    for (const GroupRates& group : inner_->initial_rates()) add_group(group);
  }

  void step(const StepContext& context) override { inner_->step(context); }
  bool skips_overflow() const override { return inner_->skips_overflow(); }
  bool takes_factors() const override { return inner_->takes_factors(); }
  void last_step_was_skipped() override { inner_->last_step_was_skipped(); }
  NamedTensors state() override { return inner_->state(); }
  void load_state(const std::map<std::string, at::Tensor>& saved) override { inner_->load_state(saved); }

 protected:
  std::unique_ptr<Optimizer> inner_;
  std::vector<std::string> names_;
  Tensors tensors_;
};

template <class T>
void describe_inner(Fields<T>& f) {
  f.required("optimizer", &T::optimizer).doc("the wrapped optimizer, with its own options and param_groups");
}

struct Lookahead {
  Inner optimizer;
  int64_t k = 5;
  double alpha = 0.5;
  static void describe(Fields<Lookahead>& f) {
    describe_inner(f);
    f.optional("k", &Lookahead::k)
        .at_least(1)
        .doc("steps of the fast weights for one of the slow")
        .unit("optimizer steps");
    f.optional("alpha", &Lookahead::alpha)
        .greater_than(0)
        .at_most(1)
        .doc("how far the slow weights go towards the fast");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const;
};

/// Source: Zhang et al. 2019, "Lookahead optimizer: k steps forward, 1 step back", algorithm 1.
class LookaheadOptimizer : public Wrapper {
 public:
  LookaheadOptimizer(const Lookahead& options, const OptimizerInputs& inputs)
      : Wrapper(options.optimizer, inputs), k_(options.k), alpha_(options.alpha) {
    for (const at::Tensor& tensor : tensors_) slow_.push_back(tensor.detach().clone());
  }

  void step(const StepContext& context) override {
    Wrapper::step(context);
    const c10::AutoGradMode no_gradients(false);
    num_steps_ += 1;
    if (num_steps_.item<int64_t>() % k_ != 0) return;
    BeforeStep before(context.overflow);
    before.keep(slow_);
    before.keep(tensors_);
    at::_foreach_add_(slow_, at::_foreach_sub(tensors_, slow_), alpha_);
    at::_foreach_copy_(tensors_, slow_);
    before.restore();
  }
  void last_step_was_skipped() override {
    Wrapper::last_step_was_skipped();
    num_steps_ -= 1;
  }
  NamedTensors state() override {
    auto state = Wrapper::state();
    for (size_t i = 0; i < slow_.size(); ++i) state.emplace_back(names_[i] + kSlow, slow_[i]);
    state.emplace_back(kSteps, num_steps_);
    return state;
  }
  void load_state(const std::map<std::string, at::Tensor>& saved) override {
    std::map<std::string, at::Tensor> inner = saved;
    const c10::AutoGradMode no_gradients(false);
    const auto take = [&](const std::string& name, const at::Tensor& tensor) {
      const auto node = inner.extract(name);
      if (node.empty()) throw Error("the checkpoint's optimizer has no " + name);
      if (node.mapped().sizes() != tensor.sizes()) throw Error("the checkpoint's " + name + " has another shape");
      tensor.copy_(node.mapped());
    };
    for (size_t i = 0; i < slow_.size(); ++i) take(names_[i] + kSlow, slow_[i]);
    take(kSteps, num_steps_);
    Wrapper::load_state(inner);
  }

 private:
  static constexpr const char* kSlow = ".slow_weights";
  static constexpr const char* kSteps = "lookahead.step";
  int64_t k_;
  double alpha_;
  Tensors slow_;
  at::Tensor num_steps_ = at::zeros({}, at::kLong);
};

std::unique_ptr<Optimizer> Lookahead::build(const OptimizerInputs& inputs) const {
  return std::make_unique<LookaheadOptimizer>(*this, inputs);
}

struct GradientCentralization {
  Inner optimizer;
  static void describe(Fields<GradientCentralization>& f) { describe_inner(f); }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const;
};

/// Source: Yong et al. 2020, "Gradient centralization", equation 1.
class CentralizingOptimizer : public Wrapper {
 public:
  using Wrapper::Wrapper;
  void step(const StepContext& context) override {
    centralize();
    StepContext of_inner = context;
    of_inner.closure = [&] {
      at::Tensor loss = context.closure();
      centralize();
      return loss;
    };
    Wrapper::step(of_inner);
  }
  bool takes_factors() const override { return false; }  // what is clipped is what the mean is taken of

 private:
  /// The gradient of each output's weights loses its mean; vectors stay.
  void centralize() const {
    const c10::AutoGradMode no_gradients(false);
    Tensors gradients, means;
    for (const at::Tensor& tensor : tensors_) {
      const at::Tensor& gradient = tensor.grad();
      if (tensor.dim() < 2 || !gradient.defined()) continue;
      std::vector<int64_t> dims(static_cast<size_t>(tensor.dim()) - 1);
      std::iota(dims.begin(), dims.end(), 1);
      gradients.push_back(gradient);
      means.push_back(gradient.mean(dims, true));
    }
    if (!gradients.empty()) at::_foreach_sub_(gradients, means);
  }
};

std::unique_ptr<Optimizer> GradientCentralization::build(const OptimizerInputs& inputs) const {
  return std::make_unique<CentralizingOptimizer>(optimizer, inputs);
}

struct OptimizerPart {
  std::string match = ".*";
  Inner optimizer;
  static void describe(Fields<OptimizerPart>& f) {
    f.optional("match", &OptimizerPart::match)
        .doc("a regular expression, searched in state names; the first that matches a parameter wins");
    describe_inner(f);
  }
  void check(Checker& checker) const {
    const std::string fault = pattern_fault(match);
    if (!fault.empty()) checker.fail("match", fault);
  }
};

struct ChainedOptimizer {
  std::vector<OptimizerPart> optimizers;
  static void describe(Fields<ChainedOptimizer>& f) {
    f.required("optimizers", &ChainedOptimizer::optimizers)
        .not_empty("expected at least one optimizer")
        .doc("each with the parameters it steps on: {match: PATTERN, optimizer: …}");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const;
};

/// Several optimizers, each with parameters of its own; rates and state are theirs, one after the other.
class OptimizerChain : public Optimizer {
 public:
  OptimizerChain(const std::vector<OptimizerPart>& parts, const OptimizerInputs& inputs) {
    const Ungrouped all(inputs);
    std::vector<NamedTensors> parameters(parts.size());
    std::vector<Regex> patterns;
    for (const OptimizerPart& part : parts) patterns.push_back(regex_of(part.match));
    for (const auto& item : all.parameters) {
      const auto matches = [&](const Regex& pattern) { return pattern.is_in(item.first); };
      const auto pattern = std::find_if(patterns.begin(), patterns.end(), matches);
      if (pattern == patterns.end()) {
        throw Error("no pattern matches " + item.first + "; an optimizer without `match` takes what is left");
      }
      parameters[static_cast<size_t>(pattern - patterns.begin())].push_back(item);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parameters[i].empty())
        throw Error("'" + parts[i].match + "' leaves no parameters for " + parts[i].optimizer.type);
      Link link;
      for (const auto& [name, unused] : parameters[i]) link.names.insert(name);
      link.optimizer = parts[i].optimizer.build(group_parameters(parts[i].optimizer, parameters[i], all.lr_scales));
      for (const GroupRates& group : link.optimizer->initial_rates()) add_group(group);
      links_.push_back(std::move(link));
    }
  }

  void step(const StepContext& context) override {
    StepContext of_link = context;
    auto next = context.rates.begin();
    for (const Link& link : links_) {
      const auto end = next + static_cast<std::ptrdiff_t>(link.optimizer->initial_rates().size());
      of_link.rates.assign(next, end);
      link.optimizer->step(of_link);
      next = end;
    }
  }
  bool skips_overflow() const override {
    return std::all_of(links_.begin(), links_.end(), [](const Link& link) { return link.optimizer->skips_overflow(); });
  }
  bool takes_factors() const override {
    return std::all_of(links_.begin(), links_.end(), [](const Link& link) { return link.optimizer->takes_factors(); });
  }
  void last_step_was_skipped() override {
    for (const Link& link : links_) link.optimizer->last_step_was_skipped();
  }
  NamedTensors state() override {
    NamedTensors state;
    for (size_t i = 0; i < links_.size(); ++i) {
      for (auto& [name, tensor] : links_[i].optimizer->state()) {
        state.emplace_back(links_[i].owns(name) ? name : prefix(i) + name, tensor);
      }
    }
    return state;
  }
  void load_state(const std::map<std::string, at::Tensor>& saved) override {
    for (size_t i = 0; i < links_.size(); ++i) {
      std::map<std::string, at::Tensor> own;
      for (const auto& [name, tensor] : saved) {
        if (links_[i].owns(name)) own[name] = tensor;
        if (name.starts_with(prefix(i))) own[name.substr(prefix(i).size())] = tensor;
      }
      links_[i].optimizer->load_state(own);
    }
  }

 private:
  struct Link {
    std::unique_ptr<Optimizer> optimizer;
    std::set<std::string> names;  // of its parameters
    /// Whether this is the state of one of its parameters: "0.weight.exp_avg".
    bool owns(const std::string& state) const { return names.contains(state.substr(0, state.rfind('.'))); }
  };
  /// Of state that belongs to no parameter, as Lookahead's count of steps.
  static std::string prefix(size_t i) { return "optimizers." + std::to_string(i) + "."; }

  std::vector<Link> links_;
};

std::unique_ptr<Optimizer> ChainedOptimizer::build(const OptimizerInputs& inputs) const {
  return std::make_unique<OptimizerChain>(optimizers, inputs);
}

}  // namespace

void add_wrappers(OptimizerRegistry& optimizers) {
  optimizers.add<Lookahead>("Lookahead", "slow weights that follow those of another optimizer every few steps");
  optimizers.add<ChainedOptimizer>("ChainedOptimizer",
                                   "several optimizers, each for the parameters that its pattern matches");
  optimizers.add<GradientCentralization>("GradientCentralization",
                                         "another optimizer, which gets gradients without their mean");
}

}  // namespace trainrun
