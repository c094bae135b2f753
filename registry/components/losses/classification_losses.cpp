#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/multi_margin_loss.h>
#include <ATen/ops/multilabel_margin_loss.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/soft_margin_loss.h>

#include "registry/components/losses/loss_of.h"
#include "registry/kernels/cross_entropy.h"

namespace trainrun {

/// What the loss of a step is the mean of, where the step is several batches.
enum class MeanOver { kBatch, kTargets };
template <>
struct Words<MeanOver> {
  static constexpr std::array kWords = {"batch", "targets"};
};

namespace {

constexpr const char* kClassWeightDoc = "a weight for each class";
constexpr const char* kIgnoreIndexDoc = "targets with this value are ignored";

constexpr const char* kMeanOverDoc =
    "how the batches and ranks of a step are brought together: batch: by their samples, as PyTorch's loops do; "
    "targets: "
    "by the class indices that count, with their weights, as if all were one batch, so that a token counts as much as "
    "any other. An evaluation is always as one batch";

/// Fails where `mean_over: targets` has no mean to be over.
void describe_mean_over_rules(auto& f) {
  f.rule({.when = {the("mean_over").is("targets")},
          .all = {the("reduction").is("mean")},
          .at = "mean_over",
          .message = "is for reduction: mean; a sum is the same, however a step is cut into batches"});
}

/// Throws LayerError where it is the mean over targets that cannot be counted.
void require_class_indices_for(MeanOver mean_over, const char* targets) {
  if (mean_over == MeanOver::kBatch) return;
  throw LayerError(std::string("mean_over: targets counts class indices, but the target is ") + targets);
}

/// How the targets among `in` are counted; empty where they are no class indices.
std::optional<CountedTargets> counted_among(const LayerInputs& in, int64_t ignore_index,
                                            std::optional<std::vector<double>> weight, MeanOver mean_over) {
  if (in.examples.size() != 2 || in.examples[1].is_floating_point()) return std::nullopt;
  return CountedTargets{ignore_index, std::move(weight), 1, mean_over == MeanOver::kTargets, "leave mean_over out"};
}

constexpr const char* kClassDimDoc = "the output's dimension that holds the classes; -1 for [N, T, C] against [N, T]";

constexpr const char* kLastClassDim = "class_dim: -1 in the loss";

/// `tensor` with `class_dim` as its second dimension, where LibTorch wants the classes.
at::Tensor classes_second(const at::Tensor& tensor, int64_t class_dim) {
  return class_dim == 1 || tensor.dim() < 3 ? tensor : tensor.movedim(class_dim, 1);
}

/// The inputs as LibTorch wants them; `rows` of classes [M, C] against [M] where that spares a copy.
Tensors with_classes_second(const Tensors& in, int64_t class_dim) {
  if (class_dim == 1 || in[0].dim() < 3) return in;
  const bool same = in[0].sizes() == in[1].sizes() && in[1].is_floating_point();
  const bool last = class_dim == -1 || class_dim == in[0].dim() - 1;
  if (last && !same) return {in[0].flatten(0, -2), in[1].flatten()};
  return {classes_second(in[0], class_dim), same ? classes_second(in[1], class_dim) : in[1]};
}

/// The examples with the classes second. Throws LayerError where the output has no dimension `class_dim`.
LayerInputs with_classes_second(const LayerInputs& in, int64_t class_dim) {
  const int64_t dim = class_dim_of(in.shape(0), class_dim);
  LayerInputs moved = in;
  const bool same = in.shape(0) == in.shape(1) && in.examples[1].is_floating_point();
  moved.examples[0] = in.examples[0].movedim(dim, 1);
  if (same) moved.examples[1] = in.examples[1].movedim(dim, 1);
  return moved;
}

struct CrossEntropyLoss : ClassInputs {
  ClassWeights weight;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  int64_t class_dim = 1;
  MeanOver mean_over = MeanOver::kBatch;
  static void describe(auto& f) {
    f.optional("class_dim", &CrossEntropyLoss::class_dim).doc(kClassDimDoc);
    f.optional("mean_over", &CrossEntropyLoss::mean_over).doc(kMeanOverDoc);
    f.optional("weight", &CrossEntropyLoss::weight).at_least(0).doc(kClassWeightDoc);
    f.optional("ignore_index", &CrossEntropyLoss::ignore_index).doc(kIgnoreIndexDoc);
    f.optional("label_smoothing", &CrossEntropyLoss::label_smoothing)
        .at_least(0)
        .at_most(1)
        .doc("share of the target that is spread over all classes");
  }
  static void describe_rules(auto& f) { describe_mean_over_rules(f); }
  void say(const LayerInputs& in, LossFacts& facts) const {
    facts.of_classes = LossFacts::Scores::kLogits;
    facts.counted = counted_among(in, ignore_index, weight, mean_over);
    facts.takes_bfloat16 = has_own_kernel();
    set_classes(in, class_dim, ignore_index, facts);
  }
  bool has_own_kernel() const { return !weight && label_smoothing == 0; }
  void require(const LayerInputs& given, const std::vector<std::string>& roles) const {
    const LayerInputs in = class_dim == 1 ? given : with_classes_second(given, class_dim);
    const bool probabilities = in.shape(0) == in.shape(1) && in.examples[1].is_floating_point();
    if (!probabilities) {
      require_class_indices(
          in, weight, "write loss: CausalLMLoss where they are the next tokens, else " + std::string(kLastClassDim));
      return require_several_classes(in);
    }
    require_class_indices_for(mean_over, "probabilities");
    require_alike(in, roles);
    require_several_classes(in);
    if (weight && (in.shape(0).size() < 2 || static_cast<int64_t>(weight->size()) != in.shape(0)[1])) {
      throw LayerError("weight has " + std::to_string(weight->size()) + " classes, but the output is " +
                       shape_text(in.shape(0)));
    }
  }
  at::Tensor operator()(const Tensors& given, int64_t reduction) const {
    const Tensors in = with_classes_second(given, class_dim);
    if (has_own_kernel()) return kernels::cross_entropy(in[0], in[1], reduction, ignore_index);
    return at::cross_entropy_loss(in[0], in[1], weight.like(in[0]), reduction, ignore_index, label_smoothing);
  }
};

/// CrossEntropyLoss as language models are trained with it.
struct CausalLMLoss {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  static void describe(Fields<CausalLMLoss>& f) {
    f.optional("ignore_index", &CausalLMLoss::ignore_index).doc(kIgnoreIndexDoc);
    f.optional("label_smoothing", &CausalLMLoss::label_smoothing)
        .at_least(0)
        .at_most(1)
        .doc("share of the target that is spread over all tokens");
  }
  LossFacts facts(const LayerInputs& in) const {
    LossFacts facts;
    facts.target = LossFacts::Target::kOther;  // tokens
    facts.counted = CountedTargets{ignore_index};
    facts.takes_bfloat16 = formula().has_own_kernel();
    set_classes(in, -1, ignore_index, facts);
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    const auto roles = CrossEntropyLoss::roles();
    require_roles(in, roles);
    in.require_dims(3, 3, "[N, T, C]");
    formula().require(in, roles);
    return {nullptr, [own = formula()](const Tensors& inputs) { return own(inputs, at::Reduction::Mean); }};
  }

 private:
  CrossEntropyLoss formula() const {
    CrossEntropyLoss formula;
    formula.ignore_index = ignore_index;
    formula.label_smoothing = label_smoothing;
    formula.class_dim = -1;
    formula.mean_over = MeanOver::kTargets;
    return formula;
  }
};

struct NLLLoss : ClassInputs {
  ClassWeights weight;
  int64_t ignore_index = -100;
  int64_t class_dim = 1;
  MeanOver mean_over = MeanOver::kBatch;
  static void describe_rules(auto& f) { describe_mean_over_rules(f); }
  static void describe(auto& f) {
    f.optional("class_dim", &NLLLoss::class_dim).doc(kClassDimDoc);
    f.optional("mean_over", &NLLLoss::mean_over).doc(kMeanOverDoc);
    f.optional("weight", &NLLLoss::weight).at_least(0).doc(kClassWeightDoc);
    f.optional("ignore_index", &NLLLoss::ignore_index).doc(kIgnoreIndexDoc);
  }
  void say(const LayerInputs& in, LossFacts& facts) const {
    facts.of_classes = LossFacts::Scores::kLogProbabilities;
    facts.counted = counted_among(in, ignore_index, weight, mean_over);
    set_classes(in, class_dim, ignore_index, facts);
  }
  void require(const LayerInputs& in, const std::vector<std::string>&) const {
    require_class_indices(class_dim == 1 ? in : with_classes_second(in, class_dim), weight,
                          "write " + std::string(kLastClassDim));
  }
  at::Tensor operator()(const Tensors& given, int64_t reduction) const {
    const Tensors in = with_classes_second(given, class_dim);
    return at::nll_loss_nd(in[0], in[1], weight.like(in[0]), reduction, ignore_index);
  }
};

struct BCELoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kClasses;
  ClassWeights weight;
  static void describe(auto& f) {
    f.optional("weight", &BCELoss::weight).at_least(0).doc("a factor for each element of the last dimension");
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    require_alike(in, roles);
    require_last_dim(in, "weight", weight);
  }
  static void say(const LayerInputs&, LossFacts& facts) { facts.of_one = LossFacts::Scores::kProbabilities; }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::binary_cross_entropy(in[0], in[1], weight.like(in[0]), reduction);
  }
};

struct BCEWithLogitsLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kClasses;
  ClassWeights weight;
  ClassWeights pos_weight;
  static void describe(auto& f) {
    f.optional("weight", &BCEWithLogitsLoss::weight).at_least(0).doc("a factor for each element of the last dimension");
    f.optional("pos_weight", &BCEWithLogitsLoss::pos_weight)
        .at_least(0)
        .doc("a factor for the positive targets of each element of the last dimension");
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    require_alike(in, roles);
    require_last_dim(in, "weight", weight);
    require_last_dim(in, "pos_weight", pos_weight);
  }
  static void say(const LayerInputs&, LossFacts& facts) { facts.of_one = LossFacts::Scores::kLogits; }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::binary_cross_entropy_with_logits(in[0], in[1], weight.like(in[0]), pos_weight.like(in[0]), reduction);
  }
};

struct SoftMarginLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  static void describe(auto&) {}
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::soft_margin_loss(in[0], in[1], reduction);
  }
};

struct MultiMarginLoss : ClassInputs {
  int64_t p = 1;
  double margin = 1;
  ClassWeights weight;
  static void describe(auto& f) {
    f.optional("p", &MultiMarginLoss::p).at_least(1).at_most(2).doc("power of the margins");
    f.optional("margin", &MultiMarginLoss::margin).doc("by how much the target's score should be the largest");
    f.optional("weight", &MultiMarginLoss::weight).at_least(0).doc(kClassWeightDoc);
  }
  static void say(const LayerInputs& in, LossFacts& facts) {
    facts.of_classes = LossFacts::Scores::kLogits;
    set_classes(in, 1, std::nullopt, facts);
  }
  void require(const LayerInputs& in, const std::vector<std::string>&) const {
    in.require_dims(2, 2, "[N, C]");
    require_class_indices(in, weight);
    require_several_classes(in);
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::multi_margin_loss(in[0], in[1], p, margin, weight.like(in[0]), reduction);
  }
};

struct MultiLabelMarginLoss : ClassInputs {
  static constexpr auto kTarget = LossFacts::Target::kOther;
  static void describe(auto&) {}
  static void say(const LayerInputs& in, LossFacts& facts) {
    set_classes(in, 1, std::nullopt, facts);
    if (facts.classes) facts.classes->least = -1;
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    in.require_dims(2, 2, "[N, C]");
    require_alike(in, roles);
    if (in.examples[1].scalar_type() != at::kLong) throw LayerError("its target is class indices (int64), then -1");
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return at::multilabel_margin_loss(in[0], in[1], reduction);
  }
};

at::Tensor reduced(const at::Tensor& losses, int64_t reduction) {
  return reduction == at::Reduction::Mean ? losses.mean() : losses.sum();
}

struct MultiLabelSoftMarginLoss : AlikeInputs {
  static constexpr auto kTarget = LossFacts::Target::kClasses;
  ClassWeights weight;
  static void describe(auto& f) {
    f.optional("weight", &MultiLabelSoftMarginLoss::weight).at_least(0).doc(kClassWeightDoc);
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    require_alike(in, roles);
    require_last_dim(in, "weight", weight);
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    const at::Tensor& target = in[1];
    at::Tensor losses = -(target * at::log_sigmoid(in[0]) + (1 - target) * at::log_sigmoid(-in[0]));  // [N, …, C]
    if (weight) losses = losses * weight.like(in[0]);
    return reduced(losses.mean(-1), reduction);
  }
};

/// Source: Lin et al. 2017, "Focal Loss for Dense Object Detection": -alpha_t (1 - p_t)^gamma log(p_t). With targets as
/// numbers it is torchvision.ops.sigmoid_focal_loss; with class indices p_t is the softmax's probability of the target.
struct FocalLoss : ClassInputs {
  std::optional<std::variant<double, std::vector<double>>> alpha;
  double gamma = 2;
  int64_t ignore_index = -100;
  MeanOver mean_over = MeanOver::kBatch;
  static void describe_rules(auto& f) { describe_mean_over_rules(f); }
  static void describe(auto& f) {
    f.optional("mean_over", &FocalLoss::mean_over).doc(kMeanOverDoc);
    f.optional("alpha", &FocalLoss::alpha)
        .at_least(-1)
        .doc(
            "with 0/1 targets: weight of the ones, 1 - alpha of the zeros, 0.25 by default, -1: none; with class "
            "indices: a factor, or a list of one for each class, none by default");
    f.optional("gamma", &FocalLoss::gamma).at_least(0).doc("how strongly the weight of easy samples is reduced");
    f.optional("ignore_index", &FocalLoss::ignore_index).doc("class indices with this value are ignored");
  }
  void require(const LayerInputs& in, const std::vector<std::string>& roles) const {
    const ClassWeights weights = class_weights();
    if (!is_binary(in.examples)) return require_class_indices(in, weights);
    require_alike(in, roles);
    require_class_indices_for(mean_over, "0 and 1");
    if (weights) throw LayerError("alpha is a list of class weights, but the targets are not class indices");
  }
  void say(const LayerInputs& in, LossFacts& facts) const {
    facts.of_classes = facts.of_one = LossFacts::Scores::kLogits;
    if (in.examples.size() < 2 || is_binary(in.examples)) return;
    facts.counted = counted_among(in, ignore_index, std::nullopt, mean_over);
    set_classes(in, 1, ignore_index, facts);
  }
  at::Tensor operator()(const Tensors& in, int64_t reduction) const {
    return is_binary(in) ? binary(with_labels_as_numbers(in), reduction) : multiclass(in, reduction);
  }

 private:
  /// Targets like the output, or [N] for an output [N, 1]; else they are class indices [N, …] for [N, C, …].
  static bool is_binary(const Tensors& in) {
    return in[0].sizes() == in[1].sizes() || (in[0].dim() == 2 && in[0].size(1) == 1);
  }
  ClassWeights class_weights() const {
    const auto* list = alpha ? std::get_if<std::vector<double>>(&*alpha) : nullptr;
    return list ? ClassWeights(*list) : ClassWeights();
  }
  double factor(double by_default) const {
    const auto* number = alpha ? std::get_if<double>(&*alpha) : nullptr;
    return number ? *number : by_default;
  }
  at::Tensor binary(const Tensors& in, int64_t reduction) const {
    const double positive = factor(0.25);
    const at::Tensor& target = in[1];
    const at::Tensor p = at::sigmoid(in[0]);
    const at::Tensor entropy = at::binary_cross_entropy_with_logits(in[0], target, {}, {}, at::Reduction::None);
    const at::Tensor p_target = p * target + (1 - p) * (1 - target);
    at::Tensor losses = entropy * (1 - p_target).pow(gamma);
    if (positive >= 0) losses = losses * (positive * target + (1 - positive) * (1 - target));
    return reduced(losses, reduction);
  }
  at::Tensor multiclass(const Tensors& in, int64_t reduction) const {
    const at::Tensor counted = in[1] != ignore_index;                       // [N, …]
    const at::Tensor target = in[1].masked_fill(counted.logical_not(), 0);  // any index that is one
    const at::Tensor log_p = at::log_softmax(in[0], 1).gather(1, target.unsqueeze(1)).squeeze(1);
    at::Tensor losses = -(1 - log_p.exp()).pow(gamma) * log_p * factor(1);
    const at::Tensor weights = class_weights().like(in[0]);
    if (weights.defined()) losses = losses * weights.index_select(0, target.flatten()).view_as(target);
    losses = losses.masked_fill(counted.logical_not(), 0);
    return reduction == at::Reduction::Mean ? losses.sum() / counted.sum() : losses.sum();
  }
};

}  // namespace

void add_classification_losses(LossRegistry& losses) {
  losses.add<LossOf<CrossEntropyLoss>>(
      "CrossEntropyLoss",
      "cross-entropy of logits [N, C, …] against class indices [N, …] (int64) or probabilities [N, C, …]");
  losses.add<CausalLMLoss>("CausalLMLoss",
                           "cross-entropy of logits [N, T, C] against labels [N, T] that are already shifted (each is "
                           "the next token), averaged over all labels of a step that count");
  losses.add<LossOf<NLLLoss>>(
      "NLLLoss", "negative log-likelihood: log-probabilities [N, C, …] against class indices [N, …] (int64)");
  losses.add<LossOf<BCELoss>>("BCELoss", "binary cross-entropy of probabilities against targets from 0 to 1");
  losses.add<LossOf<BCEWithLogitsLoss>>("BCEWithLogitsLoss",
                                        "binary cross-entropy of logits against targets from 0 to 1");
  losses.add<LossOf<SoftMarginLoss>>("SoftMarginLoss", "log(1 + exp(-target output)) with targets 1 and -1");
  losses.add<LossOf<MultiMarginLoss>>(
      "MultiMarginLoss", "hinge of scores [N, C] against class indices [N]: the target's score should be the largest");
  losses.add<LossOf<MultiLabelMarginLoss>>(
      "MultiLabelMarginLoss", "hinge of scores [N, C] against several class indices [N, C], the rest of them -1");
  losses.add<LossOf<MultiLabelSoftMarginLoss>>("MultiLabelSoftMarginLoss",
                                               "binary cross-entropy of logits [N, C], the mean over the classes");
  losses.add<LossOf<FocalLoss>>("FocalLoss",
                                "cross-entropy in which easy samples count less; of logits against 0/1 targets of the "
                                "same shape, or [N, C, …] against class indices [N, …] (Lin et al. 2017)");
}

}  // namespace trainrun
