#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "registry/components/optimizers/line_search.h"
#include "registry/kinds/optimizer.h"

namespace trainrun {
namespace {

/// torch.optim.LBFGS's parameters.
struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;
  std::optional<int64_t> max_eval;
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  int64_t history_size = 100;
  std::optional<std::string> line_search_fn;
  static void describe(Fields<LBFGSOptions>& f) {
    f.optional("lr", &LBFGSOptions::lr).at_least(0).doc("learning rate: length of a step, or where its search begins");
    f.optional("max_iter", &LBFGSOptions::max_iter).at_least(1).doc("iterations in one optimizer step");
    f.optional("max_eval", &LBFGSOptions::max_eval)
        .at_least(1)
        .doc("evaluations of the loss in one optimizer step; 1.25 max_iter by default");
    f.optional("tolerance_grad", &LBFGSOptions::tolerance_grad).at_least(0).doc("a gradient this small ends the step");
    f.optional("tolerance_change", &LBFGSOptions::tolerance_change)
        .at_least(0)
        .doc("a change this small ends the step");
    f.optional("history_size", &LBFGSOptions::history_size).at_least(1).doc("steps that are remembered");
    f.optional("line_search_fn", &LBFGSOptions::line_search_fn)
        .one_of({"strong_wolfe"})
        .doc("how the length of a step is found; null: it is lr");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const;
};

/// All parameters as one vector; the closure is called several times a step, on the same batches.
/// Source: Nocedal & Wright 2006, algorithm 7.4; semantics of torch.optim.LBFGS.
class LBFGS : public Optimizer {
 public:
  LBFGS(const LBFGSOptions& options, const ParameterGroup& group) : options_(options), owner_(group.names[0] + ".") {
    for (const at::Tensor& tensor : group.tensors) parameters_.push_back(tensor);
    add_group(group.rates(options.lr, std::nullopt));
  }

  void step(const StepContext& context) override {
    const c10::AutoGradMode no_gradients(false);
    const auto evaluate = [&] {
      const c10::AutoGradMode gradients(true);
      ++func_evals_;
      return context.closure().item<double>();
    };
    double loss = evaluate();
    int64_t evaluations = 1;
    at::Tensor gradient = flat_gradient();
    if (largest(gradient) <= options_.tolerance_grad) return;
    const int64_t max_evaluations = options_.max_eval.value_or(options_.max_iter * 5 / 4);
    const double lr = context.rates[0].lr;
    for (int64_t i = 1; i <= options_.max_iter; ++i) {
      const bool first = ++n_iter_ == 1;
      if (!first) remember(gradient);
      direction_ = first ? gradient.neg() : newton_direction(gradient);
      prev_gradient_ = gradient.clone();
      prev_loss_ = loss;
      t_ = first ? std::min<TorchNumber>(1, 1 / TorchNumber::of(gradient.abs().sum())) * lr : lr;
      const TorchNumber slope = dot(gradient, direction_);
      if (slope > -options_.tolerance_change) return;
      if (options_.line_search_fn) {
        const int64_t left = max_evaluations - evaluations;
        evaluations += search(evaluate, loss, gradient, slope, left);
        move(t_);
      } else {
        move(t_);
        if (i == options_.max_iter) return;  // the next batch will be another one: no use to look at this again
        loss = evaluate();
        gradient = flat_gradient();
        ++evaluations;
      }
      const bool done = evaluations >= max_evaluations || largest(gradient) <= options_.tolerance_grad ||
                        largest(direction_) * abs(t_) <= options_.tolerance_change ||
                        std::abs(loss - prev_loss_) < options_.tolerance_change;
      if (done) return;
    }
  }

  NamedTensors state() override {
    const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
    NamedTensors state = {{owner_ + "func_evals", number(static_cast<double>(func_evals_))},
                          {owner_ + "n_iter", number(static_cast<double>(n_iter_))},
                          {owner_ + "t", number(t_.value())},
                          {owner_ + "H_diag", number(scale_)},
                          {owner_ + "prev_loss", number(prev_loss_)}};
    if (n_iter_ == 0) return state;
    state.emplace_back(owner_ + "d", direction_);
    state.emplace_back(owner_ + "prev_flat_grad", prev_gradient_);
    if (history_.empty()) return state;
    Tensors dirs, steps, inverses;
    for (const Pair& pair : history_) {
      dirs.push_back(pair.y);
      steps.push_back(pair.s);
      inverses.push_back(number(pair.ro));
    }
    state.emplace_back(owner_ + "old_dirs", at::stack(dirs));
    state.emplace_back(owner_ + "old_stps", at::stack(steps));
    state.emplace_back(owner_ + "ro", at::stack(inverses));
    return state;
  }

  void load_state(const std::map<std::string, at::Tensor>& saved) override {
    const auto find = [&](const char* name) -> const at::Tensor& {
      const auto it = saved.find(owner_ + name);
      if (it == saved.end()) throw Error("the checkpoint's optimizer has no " + owner_ + name);
      return it->second;
    };
    func_evals_ = static_cast<int64_t>(find("func_evals").item<double>());
    n_iter_ = static_cast<int64_t>(find("n_iter").item<double>());
    t_ = find("t").item<double>();
    scale_ = find("H_diag").item<double>();
    prev_loss_ = find("prev_loss").item<double>();
    history_.clear();
    if (n_iter_ == 0) return;
    const auto vector = [&](const char* name) {
      int64_t numel = 0;
      for (const at::Tensor& parameter : parameters_) numel += parameter.numel();
      const at::Tensor& tensor = find(name);
      if (tensor.size(-1) != numel) {
        throw Error("the checkpoint's optimizer has " + owner_ + name + " of " + std::to_string(tensor.size(-1)) +
                    " weights, not " + std::to_string(numel));
      }
      return tensor.to(parameters_[0].options().requires_grad(false), false, true);
    };
    direction_ = vector("d");
    prev_gradient_ = vector("prev_flat_grad");
    if (!saved.contains(owner_ + "old_dirs")) return;
    const at::Tensor dirs = vector("old_dirs");
    const at::Tensor steps = vector("old_stps");
    for (int64_t i = 0; i < dirs.size(0); ++i) {
      history_.push_back({dirs[i].clone(), steps[i].clone(), find("ro")[i].item<double>()});
    }
  }

 private:
  struct Pair {
    at::Tensor y;  // change of the gradient
    at::Tensor s;  // change of the weights
    double ro;     // 1 / (y . s)
  };

  static TorchNumber dot(const at::Tensor& a, const at::Tensor& b) { return TorchNumber::of(a.dot(b)); }
  static TorchNumber largest(const at::Tensor& vector) { return TorchNumber::of(vector.abs().max()); }

  /// Finds the length of the step, and sets what comes of it: `t_`, `loss` and `gradient`. Returns how often it looked.
  template <class Evaluate>
  int64_t search(const Evaluate& evaluate, double& loss, at::Tensor& gradient, TorchNumber slope, int64_t max_looks) {
    const Tensors origin = copies();
    const auto look = [&](TorchNumber t) {
      move(t);
      LinePoint point{t, evaluate(), flat_gradient(), 0};
      point.slope = dot(point.gradient, direction_);
      for (size_t k = 0; k < parameters_.size(); ++k) parameters_[k].copy_(origin[k]);
      return point;
    };
    int64_t looks = 0;
    const LinePoint start = {0, loss, gradient, slope};
    const LinePoint end =
        strong_wolfe(look, start, t_, largest(direction_), options_.tolerance_change, max_looks, looks);
    loss = end.value;
    gradient = end.gradient;
    t_ = end.t;
    return looks;
  }
  at::Tensor flat_gradient() const {
    Tensors parts;
    for (const at::Tensor& p : parameters_) {
      parts.push_back((p.grad().defined() ? p.grad() : at::zeros_like(p)).reshape({-1}));
    }
    return at::cat(parts);
  }
  Tensors copies() const {
    Tensors copies;
    for (const at::Tensor& parameter : parameters_) copies.push_back(parameter.clone());
    return copies;
  }
  /// The weights by `t` along the direction.
  void move(TorchNumber t) const {
    int64_t offset = 0;
    for (const at::Tensor& parameter : parameters_) {
      parameter.add_(direction_.narrow(0, offset, parameter.numel()).view(parameter.sizes()), t.value());
      offset += parameter.numel();
    }
  }
  /// What the last step taught of the curvature.
  void remember(const at::Tensor& gradient) {
    const at::Tensor y = gradient.sub(prev_gradient_);
    const at::Tensor s = direction_.mul(t_.value());
    const TorchNumber ys = dot(y, s);
    if (ys <= 1e-10) return;
    if (static_cast<int64_t>(history_.size()) == options_.history_size) history_.pop_front();
    history_.push_back({y, s, (1 / ys).value()});
    scale_ = (ys / dot(y, y)).value();
  }
  /// The negative gradient times the approximate inverse Hessian.
  at::Tensor newton_direction(const at::Tensor& gradient) const {
    at::Tensor q = gradient.neg();
    std::vector<TorchNumber> al(history_.size());
    for (size_t i = history_.size(); i-- > 0;) {
      al[i] = dot(history_[i].s, q) * history_[i].ro;
      q.add_(history_[i].y, -al[i].value());
    }
    q.mul_(scale_);
    for (size_t i = 0; i < history_.size(); ++i) {
      q.add_(history_[i].s, (al[i] - dot(history_[i].y, q) * history_[i].ro).value());
    }
    return q;
  }

  LBFGSOptions options_;
  std::string owner_;  // as in torch.optim, the first parameter has the state of all
  Tensors parameters_;
  int64_t func_evals_ = 0;
  int64_t n_iter_ = 0;
  TorchNumber t_;
  double scale_ = 1;
  double prev_loss_ = 0;
  at::Tensor direction_;
  at::Tensor prev_gradient_;
  std::deque<Pair> history_;
};

std::unique_ptr<Optimizer> LBFGSOptions::build(const OptimizerInputs& inputs) const {
  if (inputs.groups.size() > 1) throw Error("LBFGS sees all parameters as one: it takes no param_groups");
  return std::make_unique<LBFGS>(*this, inputs.groups[0]);
}

}  // namespace

void add_lbfgs(OptimizerRegistry& optimizers) {
  optimizers.add<LBFGSOptions>(
      "LBFGS", "a quasi-Newton method that evaluates the loss several times in a step; for whole batches");
}

}  // namespace trainrun
