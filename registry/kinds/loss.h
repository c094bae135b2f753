#pragma once

#include <optional>
#include <vector>

#include "registry/kinds/layer.h"

namespace trainrun {

/// The whole numbers that something may read as indices: `least` to `below` - 1, and `ignored`.
struct IndexRange {
  int64_t least = 0;
  int64_t below = 0;
  std::optional<int64_t> ignored = std::nullopt;
};

/// How a loss that is the mean over those targets which count, and not over all samples, counts the targets of a batch.
struct CountedTargets {
  int64_t ignore_index = -100;
  std::optional<std::vector<double>> weight = std::nullopt;  // of each class
  size_t input = 1;                                          // which input of the loss the targets are
  /// Whether a step of several batches is the mean over the targets of all of them (`mean_over: targets`), and not the
  /// mean of their means by their samples. Data that are evaluated are always as one batch.
  bool in_steps = true;
  std::string otherwise{};  // what to write for a mean over samples, for messages: "leave mean_over out"

  /// What the batch's mean is divided by: how many class indices of `target` count, or the sum of their weights. A
  /// float64 scalar where `target` is.
  at::Tensor count(const at::Tensor& target) const;
};

/// What a loss is, as it says itself: of its options and, as far as it depends on them, of examples of its inputs.
struct LossFacts {
  /// What the target is to what learns it.
  enum class Target {
    kUnsaid,
    kClasses,  // a class of each sample, or whether it has each of several labels
    kNumbers,  // a number that has a size, which the output predicts as it is: MSELoss
    kScaled,   // such a number, where the scale of its error is learnt, too: GaussianNLLLoss
    kCounts,   // such a number, which the output does not predict as it is: PoissonNLLLoss
    kOther,    // none of these, or there is no target
  };
  /// What the output [N, C] (kClasses) is, or [N] and [N, 1] for the probability of class 1 of two.
  enum class Scores { kNone, kLogits, kProbabilities, kLogProbabilities };

  Target target = Target::kUnsaid;
  Scores of_classes = Scores::kNone;
  Scores of_one = Scores::kNone;
  bool sums = false;  // a batch's loss is the sum of its pieces', not their mean
  /// Under autocast its first input may be of bfloat16: it is read as float32, and its gradient is of bfloat16.
  bool takes_bfloat16 = false;
  /// Empty: the mean is over all samples, or it is a sum.
  std::optional<CountedTargets> counted = std::nullopt;
  /// What the second input may hold, if it is class indices for the first. Empty: it reads no class indices.
  std::optional<IndexRange> classes = std::nullopt;

  /// Whether it learns numbers that have a size, and no classes.
  bool learns_numbers() const {
    return target == Target::kNumbers || target == Target::kScaled || target == Target::kCounts;
  }
};

/// What a loss's `build` returns.
struct Loss {
  std::shared_ptr<torch::nn::Module> state;  // parameters and buffers of the loss itself; null if there are none
  /// [output, target] (or what `inputs:` names) -> a scalar.
  std::function<at::Tensor(const Tensors&)> forward;
};

struct LossCommon {
  std::optional<std::string> name;  // of its figure, if there are several losses
  Names inputs;
  double loss_weight = 1;  // not `weight`: that is PyTorch's, one for each class
  static void describe(Fields<LossCommon>& f);
  void check(Checker& checker) const;
};

struct LossKind {
  static constexpr const char* kName = "loss";
  using Inputs = LayerInputs;
  using Product = Loss;
  using Common = LossCommon;
  /// A component may have `LossFacts facts(const LayerInputs& in) const`; `in` may have no examples, or such as its
  /// `build` refuses. Without it, what LossFacts says initially is true of it.
  using Facts = LossFacts;
};
using LossRegistry = Registry<LossKind>;
const LossRegistry& registry_of(const Catalog& catalog, LossKind);

/// `loss: CrossEntropyLoss`, or a list of losses, whose sum, each times its loss_weight, is minimized.
struct LossList : std::vector<Component<LossKind>> {
  using std::vector<Component<LossKind>>::vector;
};

template <>
struct Codec<LossList> {
  static std::optional<LossList> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext& context);
  static nlohmann::json write(const LossList& losses) { return Codec<std::vector<Component<LossKind>>>::write(losses); }
  static std::string type_name() { return "loss or list of losses"; }
};

}  // namespace trainrun
