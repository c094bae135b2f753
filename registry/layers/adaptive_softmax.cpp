#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>

#include "registry/graph/shape_mode.h"
#include "registry/kinds/layer.h"
#include "registry/layers/onnx_parts.h"

namespace trainrun {
namespace {

using at::Tensor;

/// torch.nn.AdaptiveLogSoftmaxWithLoss: its state names, initial weights and numbers are Python's. Source: Grave et al.
/// 2017, "Efficient softmax approximation for GPUs".
class AdaptiveSoftmax : public torch::nn::Module {
 public:
  /// `cutoffs` rise and end with the number of classes.
  AdaptiveSoftmax(int64_t in_features, std::vector<int64_t> cutoffs, double div_value, bool head_bias)
      : cutoffs_(std::move(cutoffs)) {
    const auto num_clusters = static_cast<int64_t>(cutoffs_.size()) - 1;
    head_ = register_module("head", linear(in_features, cutoffs_[0] + num_clusters, head_bias));
    const auto list = register_module("tail", std::make_shared<List>());
    for (int64_t i = 0; i < num_clusters; ++i) {
      const double divisor = std::pow(div_value, static_cast<double>(i + 1));
      const auto hidden = static_cast<int64_t>(std::floor(static_cast<double>(in_features) / divisor));
      const auto cluster = list->register_module(std::to_string(i), std::make_shared<List>());
      Cluster maps;
      maps.project = cluster->register_module("0", linear(in_features, hidden, false));
      maps.classify = cluster->register_module("1", linear(hidden, cutoffs_[i + 1] - cutoffs_[i], false));
      tail_.push_back(maps);
    }
  }

  /// input [M, in_features], target [M] int64 to the target's log-probability [M]. Throws c10::Error where a target is
  /// not a class.
  Tensor log_prob_of(const Tensor& input, const Tensor& target) {
    const Tensor head = at::log_softmax(head_->forward(input), 1);  // [M, shortlist + clusters]
    if (ShapeMode::active()) return log_prob(input).select(1, 0);
    const Tensor in_head = target < cutoffs_[0];
    Tensor column = target.masked_fill(in_head.logical_not(), 0);  // of the head
    Tensor within = at::zeros_like(head.select(1, 0));             // log-probability within the target's cluster
    int64_t num_found = (in_head & (target >= 0)).sum().item<int64_t>();
    for (size_t i = 0; i < tail_.size(); ++i) {
      const Tensor rows = ((target >= cutoffs_[i]) & (target < cutoffs_[i + 1])).nonzero().squeeze(1);
      if (rows.numel() == 0) continue;  // as in Python its weights have no gradient then
      const Tensor relative = target.index_select(0, rows) - cutoffs_[i];
      const Tensor cluster = cluster_log_prob(i, input.index_select(0, rows));
      within = within.index_copy(0, rows, cluster.gather(1, relative.unsqueeze(1)).squeeze(1));
      column = column.index_fill(0, rows, cutoffs_[0] + static_cast<int64_t>(i));
      num_found += rows.numel();
    }
    TORCH_CHECK(num_found == target.numel(), "Target values should be in [0, ", cutoffs_.back() - 1,
                "], but values in range [", target.min().item<int64_t>(), ", ", target.max().item<int64_t>(),
                "] were found.");
    return within + head.gather(1, column.unsqueeze(1)).squeeze(1);
  }

  /// input [M, in_features] to the log-probabilities of all classes [M, n_classes].
  Tensor log_prob(const Tensor& input) {
    const Tensor head = at::log_softmax(head_->forward(input), 1);
    std::vector<Tensor> parts = {head.slice(1, 0, cutoffs_[0])};
    for (size_t i = 0; i < tail_.size(); ++i) {
      parts.push_back(cluster_log_prob(i, input) + head.select(1, cutoffs_[0] + static_cast<int64_t>(i)).unsqueeze(1));
    }
    return at::cat(parts, 1);
  }

 private:
  struct List : torch::nn::Module {};
  struct Cluster {
    torch::nn::Linear project = nullptr;
    torch::nn::Linear classify = nullptr;
  };

  static torch::nn::Linear linear(int64_t in, int64_t out, bool bias) {
    return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
  }
  Tensor cluster_log_prob(size_t i, const Tensor& input) {
    return at::log_softmax(tail_[i].classify->forward(tail_[i].project->forward(input)), 1);
  }

  std::vector<int64_t> cutoffs_;
  torch::nn::Linear head_ = nullptr;
  std::vector<Cluster> tail_;
};

struct AdaptiveLogSoftmaxWithLoss {
  int64_t n_classes = 0;
  std::vector<int64_t> cutoffs;
  double div_value = 4;
  bool head_bias = false;
  bool log_prob = false;
  std::optional<int64_t> in_features;
  static void describe(Fields<AdaptiveLogSoftmaxWithLoss>& f) {
    using A = AdaptiveLogSoftmaxWithLoss;
    f.required("n_classes", &A::n_classes).at_least(2).doc("number of classes; the most frequent ones come first");
    f.required("cutoffs", &A::cutoffs)
        .at_least(1)
        .not_empty("at least one cutoff is needed")
        .doc("ascending class indices at which a new cluster begins; classes before the first are the head's");
    f.optional("div_value", &A::div_value)
        .greater_than(0)
        .doc("each cluster has this many times fewer features than the one before it");
    f.optional("head_bias", &A::head_bias).doc("a learned bias of the head");
    f.optional("log_prob", &A::log_prob)
        .doc(
            "a third output: log-probabilities of all classes [N, …, n_classes], for metrics; takes the time that the "
            "clusters save");
    f.optional("in_features", &A::in_features).at_least(1).doc("number of features; inferred");
  }
  void check(Checker& checker) const {
    const bool rising = std::adjacent_find(cutoffs.begin(), cutoffs.end(), std::greater_equal<>()) == cutoffs.end();
    if (!rising) checker.fail("cutoffs", "must be ascending");
    if (!cutoffs.empty() && cutoffs.back() > n_classes - 1) {
      checker.fail("cutoffs", "must be less than n_classes, " + std::to_string(n_classes));
    }
  }
  Layer build(const LayerInputs& in) const {
    if (in.num_own() != 2) throw LayerError("it reads features and class indices; write inputs: [features, label]");
    const int64_t features = in.infer("in_features", in_features, -1);
    if (in.examples[1].scalar_type() != at::kLong || in.shape(1) != in.shape(0).slice(0, in.shape(0).size() - 1)) {
      throw LayerError("features " + shape_text(in.shape(0)) + " need class indices (int64) " +
                       shape_text(in.shape(0).slice(0, in.shape(0).size() - 1)));
    }
    std::vector<int64_t> ends = cutoffs;
    ends.push_back(n_classes);
    if (std::floor(static_cast<double>(features) / std::pow(div_value, static_cast<double>(cutoffs.size()))) < 1) {
      throw LayerError("div_value leaves the last cluster no features of " + std::to_string(features));
    }
    const auto module = std::make_shared<AdaptiveSoftmax>(features, ends, div_value, head_bias);
    return {module, [module, all = log_prob, classes = n_classes](const Tensors& inputs) -> Tensors {
              const Tensor rows = inputs[0].flatten(0, -2);  // [M, C]
              const Tensor output = module->log_prob_of(rows, inputs[1].flatten()).view_as(inputs[1]);
              Tensors outputs = {output, -output.mean()};
              if (!all) return outputs;
              std::vector<int64_t> sizes = inputs[0].sizes().vec();
              sizes.back() = classes;
              outputs.push_back(module->log_prob(rows).view(sizes));
              return outputs;
            }};
  }
  void onnx(OnnxForm& form) const {
    const OnnxValue all = all_form(form);
    const OnnxValue target = form.op("Unsqueeze", {form.input(1), form.ints({-1})});
    const OnnxValue found = form.op("GatherElements", {all, target}, {{"axis", -1}});
    form.give(form.op("Squeeze", {found, form.ints({-1})}));
    form.give(form.op("Neg", {form.op("ReduceMean", {form.given()[0]}, {{"keepdims", 0}})}));
    form.give(all);
  }

 private:
  /// The log-probabilities of all classes.
  OnnxValue all_form(OnnxForm& form) const {
    const auto linear = [&](const OnnxValue& x, const std::string& name) {
      return onnx_linear(form, x, form.state(name + ".weight"), onnx_state_or_none(form, name + ".bias"));
    };
    const auto log_softmax = [&](const OnnxValue& x) { return form.op("LogSoftmax", {x}, {{"axis", -1}}); };
    const OnnxValue head = log_softmax(linear(form.input(), "head"));
    const auto of_head = [&](int64_t begin, int64_t end) {
      return form.op("Slice", {head, form.ints({begin}), form.ints({end}), form.ints({-1})});
    };
    OnnxValues parts = {of_head(0, cutoffs[0])};
    for (size_t i = 0; i < cutoffs.size(); ++i) {
      const std::string name = "tail." + std::to_string(i);
      const OnnxValue cluster = log_softmax(linear(linear(form.input(), name + ".0"), name + ".1"));
      const int64_t column = cutoffs[0] + static_cast<int64_t>(i);
      parts.push_back(form.op("Add", {cluster, of_head(column, column + 1)}));
    }
    return form.op("Concat", parts, {{"axis", -1}});
  }
};

}  // namespace

void add_adaptive_softmax(LayerRegistry& layers) {
  layers.add<AdaptiveLogSoftmaxWithLoss>(
      "AdaptiveLogSoftmaxWithLoss",
      "log-probabilities of many classes in clusters, those of rare classes with fewer features; inputs: [N, …, C] and "
      "class indices [N, …]; outputs: the target's log-probability [N, …], the loss (for OutputLoss)");
}

}  // namespace trainrun
