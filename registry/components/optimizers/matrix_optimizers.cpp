#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_rsqrt.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/norm.h>

#include <cmath>
#include <limits>

#include "registry/components/optimizers/foreach_optimizer.h"
#include "registry/components/optimizers/norms.h"

// Optimizers that know a parameter is a matrix. Operations and their order are torch.optim's.

namespace trainrun {
namespace {

/// Source: Shazeer & Stern 2018, "Adafactor"; as torch.optim.Adafactor changes it (see its documentation).
struct Adafactor {
  static constexpr bool kWholeTensors = true;
  double lr = 1e-2;
  double beta2_decay = -0.8;
  std::array<std::optional<double>, 2> eps = {std::nullopt, 1e-3};
  double d = 1;
  double weight_decay = 0;
  bool maximize = false;
  static constexpr bool kRawGradients = true;  // the weights' size is taken before they decay
  static void describe(Fields<Adafactor>& f) {
    f.optional("lr", &Adafactor::lr).at_least(0).doc("learning rate; at most one over the root of the step is used");
    f.optional("beta2_decay", &Adafactor::beta2_decay).at_most(0).doc("power of the step in the decay of the variance");
    f.optional("eps", &Adafactor::eps)
        .at_least(0)
        .doc("the least variance (null: the smallest step of the dtype) and the least size of weights");
    f.optional("d", &Adafactor::d).at_least(1).doc("the largest root mean square of a step");
    f.optional("weight_decay", &Adafactor::weight_decay)
        .at_least(0)
        .doc("weight decay: lr times this share of the weights is subtracted in each step");
    f.optional("maximize", &Adafactor::maximize).doc("maximize the loss instead of minimizing it");
  }
  void check(Checker& checker) const {
    if (!eps[1]) checker.fail("eps", "only the first may be null");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<Adafactor>(inputs); }

  static std::vector<std::string> state_names() { return {"step", "row_var", "col_var", "variance"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const {
    if (parameter.dim() < 2) {
      state[3] = at::zeros_like(parameter);
      return;
    }
    for (const int64_t dim : {-1, -2}) {
      std::vector<int64_t> sizes = parameter.sizes().vec();
      sizes[static_cast<size_t>(parameter.dim() + dim)] = 1;
      state[dim == -1 ? 1 : 2] = at::zeros(sizes, parameter.options().requires_grad(false));
    }
  }
  void update(GroupStep& now) const {
    for (const bool matrices : {true, false}) {
      GroupStep part;
      part.state.resize(now.state.size());
      part.lr = now.lr;
      for (size_t i = 0; i < now.parameters.size(); ++i) {
        if ((now.parameters[i].dim() > 1) != matrices) continue;
        part.parameters.push_back(now.parameters[i]);
        part.gradients.push_back(now.gradients[i]);
        for (size_t k = 0; k < now.state.size(); ++k) part.state[k].push_back(now.state[k][i]);
      }
      if (!part.parameters.empty()) update_alike(part, matrices);
    }
  }

 private:
  /// The running mean of the squared gradient along `dim`, in `means`.
  void update_factor(const GroupStep& now, int64_t dim, const Tensors& means) const {
    Tensors squares;
    std::vector<at::Scalar> lengths;
    for (const at::Tensor& gradient : now.gradients) {
      squares.push_back(at::norm(gradient, 2, dim, true));
      lengths.emplace_back(gradient.size(dim));
    }
    at::_foreach_mul_(squares, squares);
    at::_foreach_div_(squares, lengths);
    at::_foreach_lerp_(means, squares, now.by_step(0, [&](double step) { return std::pow(step, beta2_decay); }));
  }
  Tensors variances(const GroupStep& now, bool matrices, double least) const {
    if (!matrices) {
      const Tensors squares = at::_foreach_mul(now.gradients, now.gradients);
      at::_foreach_lerp_(now.state[3], squares,
                         now.by_step(0, [&](double step) { return std::pow(step, beta2_decay); }));
      return at::_foreach_clamp_min(now.state[3], least * least);
    }
    update_factor(now, -1, now.state[1]);
    update_factor(now, -2, now.state[2]);
    Tensors estimates, means;
    for (size_t i = 0; i < now.parameters.size(); ++i) {
      estimates.push_back(at::matmul(now.state[1][i], now.state[2][i]));
      means.push_back(now.state[1][i].mean(-2, true));
    }
    at::_foreach_clamp_min_(means, least);
    at::_foreach_div_(estimates, means);
    at::_foreach_clamp_min_(estimates, least * least);
    return estimates;
  }
  /// [n] float64
  static at::Tensor root_mean_squares(const Tensors& tensors) {
    std::vector<double> roots;
    for (const at::Tensor& tensor : tensors) roots.push_back(std::sqrt(static_cast<double>(tensor.numel())));
    return norms_of(tensors).div(numbers_beside(tensors[0], roots));
  }
  void update_alike(GroupStep& now, bool matrices) const {
    if (maximize) now.gradients = at::_foreach_neg(now.gradients);
    const at::Tensor sizes = root_mean_squares(now.parameters);
    if (weight_decay != 0) at::_foreach_mul_(now.parameters, 1 - now.lr * weight_decay);
    const bool is_double = now.parameters[0].scalar_type() == at::kDouble;
    const double finest =
        is_double ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
    Tensors steps = variances(now, matrices, eps[0].value_or(finest));
    at::_foreach_rsqrt_(steps);
    at::_foreach_mul_(steps, now.gradients);
    std::vector<double> rates;
    for (const at::Tensor& count : now.state[0]) {
      rates.push_back(std::min(now.lr, 1 / std::sqrt(static_cast<double>(count.item<float>()))));
    }
    const at::Tensor excess = root_mean_squares(steps).div(d).clamp_min(1);
    steps = scaled(steps, sizes.clamp_min(*eps[1]).mul(numbers_beside(sizes, rates)).neg().div(excess));
    at::_foreach_add_(now.parameters, steps);
  }
};

/// Source: Jordan et al. 2024, "Muon"; Liu et al. 2025, "Muon is scalable for LLM training" (match_rms_adamw).
struct Muon {
  static constexpr bool kWholeTensors = true;
  static constexpr bool kRawGradients = true;  // decay comes after the step is made
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  std::optional<std::string> adjust_lr_fn;
  static void describe(Fields<Muon>& f) {
    f.optional("lr", &Muon::lr).at_least(0).doc("learning rate");
    f.optional("weight_decay", &Muon::weight_decay)
        .at_least(0)
        .doc("weight decay: lr times this share of the weights is subtracted in each step");
    f.optional("momentum", &Muon::momentum).at_least(0).doc("share of the running mean that is kept");
    f.optional("nesterov", &Muon::nesterov).doc("Nesterov momentum");
    f.optional("ns_coefficients", &Muon::ns_coefficients).doc("coefficients of the Newton-Schulz polynomial");
    f.optional("eps", &Muon::eps).at_least(0).doc("the smallest norm to divide by");
    f.optional("ns_steps", &Muon::ns_steps).at_least(0).less_than(100).doc("Newton-Schulz iterations");
    f.optional("adjust_lr_fn", &Muon::adjust_lr_fn)
        .one_of({"original", "match_rms_adamw"})
        .doc("how the rate follows from a matrix's shape; null means original");
  }
  std::unique_ptr<Optimizer> build(const OptimizerInputs& inputs) const { return foreach_optimizer<Muon>(inputs); }

  void check_parameters(const ParameterGroup& group) const {
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      if (group.tensors[i].dim() == 2) continue;
      throw Error("Muon is for matrices, and " + group.names[i] + " is " + at::str(group.tensors[i].sizes()) +
                  "; give such parameters another optimizer, in a ChainedOptimizer");
    }
  }
  static std::vector<std::string> state_names() { return {"momentum_buffer"}; }
  void start(const at::Tensor& parameter, double, Tensors& state) const { state[0] = at::zeros_like(parameter); }

  /// The nearest matrix with orthogonal rows or columns, roughly, in bfloat16.
  at::Tensor orthogonalized(const at::Tensor& matrix) const {
    at::Tensor x = matrix.to(at::kBFloat16);
    const bool tall = matrix.size(0) > matrix.size(1);
    if (tall) x = x.t();
    x = x.div(x.norm().clamp_min(eps));
    const auto& [a, b, c] = ns_coefficients;
    for (int64_t i = 0; i < ns_steps; ++i) {
      const at::Tensor gram = x.mm(x.t());
      x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
    }
    return tall ? x.t() : x;
  }
  void update(GroupStep& now) const {
    at::_foreach_lerp_(now.state[0], now.gradients, 1 - now.momentum);
    const Tensors steps = nesterov ? at::_foreach_lerp(now.gradients, now.state[0], now.momentum) : now.state[0];
    at::_foreach_mul_(now.parameters, 1 - now.lr * weight_decay);
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto rows = static_cast<double>(steps[i].size(0));
      const auto columns = static_cast<double>(steps[i].size(1));
      const bool as_adamw = adjust_lr_fn.value_or("original") == "match_rms_adamw";
      const double ratio =
          as_adamw ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
      now.parameters[i].add_(orthogonalized(steps[i]), -now.lr * ratio);
    }
  }
};

}  // namespace

void add_matrix_optimizers(OptimizerRegistry& optimizers) {
  optimizers.add<Adafactor>("Adafactor", "adaptive rates that keep only the rows' and columns' means of a matrix");
  optimizers.add<Muon>("Muon", "momentum made orthogonal; for the matrices of hidden layers");
}

}  // namespace trainrun
