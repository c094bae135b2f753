#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "registry/kinds/callback.h"
#include "registry/language/named.h"
#include "registry/language/pattern.h"

namespace trainrun {

/// What is told of parameters; the words of Weights & Biases' `watch`.
enum class Watched { kAll, kGradients, kParameters };
template <>
struct Words<Watched> {
  static constexpr std::array kWords = {"all", "gradients", "parameters"};
};

namespace {

struct ParameterMonitor {
  Watched log = Watched::kAll;
  Named<NamePattern> groups;
  bool each_parameter = false;
  static void describe(Fields<ParameterMonitor>& f) {
    f.optional("log", &ParameterMonitor::log)
        .doc(
            "gradients: the norms of gradients; parameters: the norms of weights, and of a step's changes relative to "
            "them; or all");
    f.optional("groups", &ParameterMonitor::groups)
        .doc("names, each with a regular expression searched in state names: logs figures of the matching parameters");
    f.optional("each_parameter", &ParameterMonitor::each_parameter).doc("also log figures of each parameter by itself");
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;
};

/// Norms of all trainable parameters together ("all") and of groups of them.
class Monitor : public Callback {
 public:
  explicit Monitor(const ParameterMonitor& options) : options_(options) {}

  void before_update(Run& run, bool is_logged) override {
    before_.clear();
    if (!is_logged) return;
    const at::NoGradGuard no_gradients;
    find_parameters(run);
    if (tensors_.empty()) return;
    if (options_.log != Watched::kParameters) gradients_ = squares_of(gradients());
    if (options_.log == Watched::kGradients) return;
    for (const at::Tensor& tensor : tensors_) before_.push_back(tensor.detach().clone());
  }

  bool reads_gradients(bool is_logged) const override { return is_logged && options_.log != Watched::kParameters; }

  void add_figures(Run& run, Figures& figures) override {
    if (tensors_.empty()) return;
    const at::NoGradGuard no_gradients;
    Tensors rows;
    if (options_.log != Watched::kParameters) rows.push_back(std::exchange(gradients_, {}));
    if (options_.log != Watched::kGradients) {
      const Tensors weights = detached(tensors_);
      rows.push_back(squares_of(weights));
      rows.push_back(squares_of(at::_foreach_sub(weights, before_)));
      rows.push_back(squares_of(before_));
      before_.clear();
    }
    const at::Tensor sums = at::stack(rows).matmul(members_);  // [rows, groups]
    if (run.has_pieces()) run.ranks().sum(sums);
    const at::Tensor norms = sums.sqrt().to(at::kCPU).contiguous();
    add_rows(norms.const_data_ptr<double>(), figures);
  }

 private:
  void find_parameters(const Run& run) {
    if (!tensors_.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : run.parameters()) {
      if (!tensor.requires_grad()) continue;
      names.push_back(name);
      tensors_.push_back(tensor);
    }
    if (tensors_.empty()) return;
    std::vector<std::vector<bool>> members = {std::vector<bool>(names.size(), true)};
    groups_ = {"all"};
    for (const auto& [group, pattern] : options_.groups.entries) {
      members.push_back(names_with({pattern}, names));
      groups_.push_back(group);
    }
    for (size_t i = 0; options_.each_parameter && i < names.size(); ++i) {
      members.emplace_back(names.size())[i] = true;
      groups_.push_back(names[i]);
    }
    const at::Tensor matrix =
        at::zeros({static_cast<int64_t>(names.size()), static_cast<int64_t>(groups_.size())}, at::kDouble);
    auto* cells = matrix.data_ptr<double>();
    for (size_t i = 0; i < names.size(); ++i) {
      for (size_t group = 0; group < groups_.size(); ++group) *cells++ = members[group][i] ? 1 : 0;
    }
    members_ = matrix.to(tensors_[0].device());
  }

  static Tensors detached(const Tensors& tensors) {
    Tensors result;
    for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach());
    return result;
  }

  /// Zeros where a parameter has none.
  Tensors gradients() const {
    Tensors result;
    for (const at::Tensor& tensor : tensors_) {
      result.push_back(tensor.grad().defined() ? tensor.grad() : at::zeros({1}, tensor.options()));
    }
    return result;
  }

  /// [tensors] float64: the squared norm of each.
  static at::Tensor squares_of(const Tensors& tensors) {
    return at::stack(at::_foreach_norm(tensors, 2)).to(at::kDouble).square();
  }

  void add_rows(const double* norms, Figures& figures) const {
    const auto add = [&](const char* what, const double* row, const double* divisor) {
      for (size_t i = 0; i < groups_.size(); ++i) {
        figures.emplace_back("train/" + (what + ("/" + groups_[i])), divisor ? row[i] / divisor[i] : row[i]);
      }
    };
    const auto columns = static_cast<std::ptrdiff_t>(groups_.size());
    if (options_.log != Watched::kParameters) {
      add("grad_norm", norms, nullptr);
      norms += columns;
    }
    if (options_.log == Watched::kGradients) return;
    add("weight_norm", norms, nullptr);
    add("update_ratio", norms + columns, norms + 2 * columns);
  }

  ParameterMonitor options_;
  Tensors tensors_;                  // of the trainable parameters
  std::vector<std::string> groups_;  // names, "all" first
  at::Tensor members_;               // [parameters, groups] float64: 1 where a parameter is in a group
  at::Tensor gradients_;             // squared norms [parameters], between before_update and the line
  Tensors before_;                   // the weights before the step, likewise
};

std::unique_ptr<Callback> ParameterMonitor::build(const CallbackInputs&) const {
  return std::make_unique<Monitor>(*this);
}

}  // namespace

void add_parameter_monitor(CallbackRegistry& callbacks) {
  callbacks.add<ParameterMonitor>(
      "ParameterMonitor",
      "norms of gradients, of weights and of a step's changes, in each line of the log: train/grad_norm/all, "
      "train/weight_norm/all, train/update_ratio/all");
}

}  // namespace trainrun
