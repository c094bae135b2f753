#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <numeric>

#include "registry/optimizers/grouped_optimizer.h"

// Optimizers around an optimizer. Groups, rates and state of the inner one are the outer one's.

namespace trainrun {
namespace {

using Inner = Component<OptimizerKind>;

class Wrapper : public Optimizer {
 public:
  Wrapper(const Inner& inner, const OptimizerInputs& inputs) {
    std::vector<std::pair<std::string, at::Tensor>> parameters;
    std::map<std::string, double> lr_scales;
    for (const ParameterGroup& group : inputs.groups) {
      if (group.options != inputs.groups[0].options) {
        throw Error("param_groups of a wrapped optimizer go inside `optimizer`");
      }
      for (size_t i = 0; i < group.names.size(); ++i) {
        parameters.emplace_back(group.names[i], group.tensors[i]);
        lr_scales[group.names[i]] = group.lr_scale;
      }
    }
    for (const auto& [name, tensor] : parameters) names_.push_back(name), tensors_.push_back(tensor);
    inner_ = inner.build(group_parameters(inner, parameters, lr_scales));
    rates = inner_->rates;
  }

  void step(const LossClosure& closure) override {
    inner_->rates = rates;
    inner_->step(closure);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override { return inner_->state(); }
  void load_state(const std::map<std::string, at::Tensor>& saved) override { inner_->load_state(saved); }

 protected:
  std::unique_ptr<Optimizer> inner_;
  std::vector<std::string> names_;
  Tensors tensors_;
};

template <class T>
void describe_inner(Fields<T>& f) {
  f.required("optimizer", &T::optimizer).doc("what makes the steps, with its own options and param_groups");
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

  void step(const LossClosure& closure) override {
    Wrapper::step(closure);
    const c10::AutoGradMode no_gradients(false);
    num_steps_ += 1;
    if (num_steps_.item<int64_t>() % k_ != 0) return;
    at::_foreach_add_(slow_, at::_foreach_sub(tensors_, slow_), alpha_);
    at::_foreach_copy_(tensors_, slow_);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override {
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
  void step(const LossClosure& closure) override {
    centralize();
    Wrapper::step([&] {
      at::Tensor loss = closure();
      centralize();
      return loss;
    });
  }

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

}  // namespace

void add_wrappers(OptimizerRegistry& optimizers) {
  optimizers.add<Lookahead>("Lookahead", "slow weights that follow another optimizer's every few steps");
  optimizers.add<GradientCentralization>("GradientCentralization",
                                         "another optimizer, on gradients without their mean");
}

}  // namespace trainrun
